"""Sentence encoders: map each text to one vector, for comparing texts."""
