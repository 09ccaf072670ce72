"""Chat platforms: their words are translated here and go no further."""
