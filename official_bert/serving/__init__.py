"""What all exports share: texts in, predictions out, as SavedModels."""
