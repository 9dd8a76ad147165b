"""Uses trained models from Python: `Predictor`, and the loading of runs and exports."""
