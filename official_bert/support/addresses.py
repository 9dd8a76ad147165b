"""Network addresses of processes."""


def is_address(text: object) -> bool:
    """Return True for a string host:port with a valid port number."""
    if not isinstance(text, str):
        return False
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) < 2**16
