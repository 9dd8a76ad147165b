"""One frozen dataclass per script, one field per flag. The reference's flags come first, then those of this project."""
