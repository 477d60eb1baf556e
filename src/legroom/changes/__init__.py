"""Changes to a live model that make its training step smaller and leave what it learns alone."""
