"""Training that survives running out of memory: before a step, around it, and after it failed."""
