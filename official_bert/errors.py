"""The one exception for mistakes a user can mend; the scripts turn it into one line and exit code 1."""


class UserError(ValueError):
    """A mistake in flags or input files.

    The message says what is wrong, where (flag, or file and line or record) and what to do about it.
    """
