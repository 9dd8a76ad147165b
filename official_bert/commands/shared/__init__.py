"""Checks of files and helpers that several commands share."""
