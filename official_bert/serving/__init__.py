"""The base of all exports: texts in, predictions out, as SavedModels."""
