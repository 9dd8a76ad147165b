"""Sentence encoders: make one vector of each text, to compare texts by."""
