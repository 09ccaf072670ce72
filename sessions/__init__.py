"""Where order and durability begin: session keys, records, the log and its stores."""
