"""Ports of this machine."""

import socket

from official_bert.support.errors import UserError


def check_free(port: int, name: str) -> None:
    """Check that a server may listen at a port of all addresses of this machine.

    Raises:
      UserError: another process listens there, or this one may not; the message starts with `name`.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # free, too, if its connections are just ending
        try:
            probe.bind(("", port))
        except OSError as error:
            raise UserError(f"{name}={port} cannot be used ({error.strerror}); give another port") from error
