"""Extractive question answering: SQuAD 1.1, SQuAD 2.0 and data sets in the same format."""
