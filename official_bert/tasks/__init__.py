"""Tasks: each combines records, a model, losses and metrics."""
