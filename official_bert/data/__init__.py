"""Convert text to records, and read records in batches."""
