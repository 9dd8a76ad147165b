"""Tagging: a label for each word of a sentence, such as the named entity that it belongs to."""
