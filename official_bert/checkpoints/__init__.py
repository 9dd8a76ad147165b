"""Checkpoints in the reference's format, read and written by variable name."""
