"""Multiple choice: the best of several choices for a context."""
