"""Encoder families: BERT and its architectural variants."""
