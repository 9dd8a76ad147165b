"""Data sets of texts with labels: GLUE's, others', and a user's own files."""
