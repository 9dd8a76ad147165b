"""Pretraining: masked-language modeling and next-sentence prediction."""
