"""What samples are read from: one small module for each kind, all of them opened by `opening`."""
