"""What every row uses and knows nothing of BERT: files, errors, progress, tables of text."""
