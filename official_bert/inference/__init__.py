"""Finished models from Python: the `Predictor`, and how it finds runs and exports."""
