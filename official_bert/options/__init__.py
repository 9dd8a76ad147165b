"""Flags: their declaration, the groups that several commands share, and the run of a command."""
