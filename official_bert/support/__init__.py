"""Utilities for files, errors, processes and progress, independent of BERT and used by every package."""
