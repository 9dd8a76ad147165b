"""The encoder families: BERT, and the models that differ from it in more than their sizes."""
