"""Same-run comparisons: against the closest peer, and against what the machine itself allows."""
