"""Addresses of processes that other machines connect to."""


def is_address(text: object) -> bool:
    """Return whether something is a text of the form host:port, with a port that exists."""
    if not isinstance(text, str):
        return False
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) < 2**16
