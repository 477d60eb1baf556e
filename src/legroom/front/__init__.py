"""The front door's own wiring: targets, captured steps from this or another process, and the verbs as functions."""
