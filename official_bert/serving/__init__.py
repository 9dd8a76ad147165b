"""Export and serving of models as SavedModels: texts in, predictions out."""
