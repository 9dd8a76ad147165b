"""Metrics over a whole evaluation set, in NumPy."""
