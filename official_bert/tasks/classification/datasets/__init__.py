"""Labelled text data sets: GLUE, other published sets, and custom files."""
