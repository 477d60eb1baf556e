"""Memory while training: sampled at every step, written down, and told from a leak."""
