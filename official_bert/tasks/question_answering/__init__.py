"""Extractive question answering: SQuAD 1.1 and 2.0, and what is written like them."""
