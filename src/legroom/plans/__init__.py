"""Which changes to make, chosen from sizes and costs alone."""
