"""Pretraining: masked words and next sentences."""
