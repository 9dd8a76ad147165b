"""Tagging: label each word of a sentence, for example with the named entity that it belongs to."""
