"""When each buffer of a step lives: the curve over the step, its peak, and who holds what at the peak."""
