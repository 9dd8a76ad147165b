"""Files, errors, progress, tables of text: what every package uses, and which knows nothing of BERT."""
