"""Network ports of this machine."""

import socket

from official_bert.support.errors import UserError


def check_free(port: int, name: str) -> None:
    """Check that a server can listen on a port of all addresses of this machine.

    Raises:
      UserError: the port is in use or not permitted; the message starts with `name`.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port with closing connections counts as free
        try:
            probe.bind(("", port))
        except OSError as error:
            raise UserError(f"{name}={port} cannot be used ({error.strerror}); give another port") from error
