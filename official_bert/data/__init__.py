"""From text to records to batches."""
