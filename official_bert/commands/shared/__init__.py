"""File checks and helpers shared by several commands."""
