"""Data on demand: batches read by index, within a budget of RAM, for `fit` and for loops (see docs/data.md)."""
