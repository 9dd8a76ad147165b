"""The tasks: each combines records, a model, losses and scores."""
