"""Access to the server: an API key, TLS, and the web pages of other servers."""

import hmac
import os
import ssl
from typing import NamedTuple

from official_bert.support import files, text_files
from official_bert.support.errors import UserError

KEY_VARIABLE = "OFFICIAL_BERT_API_KEY"
AUTHORIZATION = b"authorization"  # the header
REFUSAL = "the API key is missing or wrong; send it in the header 'Authorization: Bearer KEY'"


class Access(NamedTuple):
    api_key: str | None = None  # that every request must have
    certfile: str | None = None  # of TLS, with `keyfile`
    keyfile: str | None = None
    cors_origins: tuple[str, ...] = ()  # of pages that may send requests, such as "https://example.org"

    def allows(self, authorization: bytes | None) -> bool:
        """Return True if the header has the key, in a time that does not depend on how much of it is right."""
        if self.api_key is None:
            return True
        scheme, _, key = (authorization or b"").partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(key.strip(), self.api_key.encode())

    def check_certificate(self) -> None:
        """Raise UserError unless the files of TLS belong together."""
        if self.certfile is None or self.keyfile is None:
            return
        for path in (self.certfile, self.keyfile):
            files.check_regular(path)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certfile, self.keyfile, password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            raise UserError(
                f"ssl_certfile={self.certfile}, ssl_keyfile={self.keyfile}: they must be a certificate and its key "
                f"without a password, in PEM ({error})"
            ) from error


NO_ACCESS_RULES = Access()


def find_key(api_key: str | None, api_key_file: str | None) -> str | None:
    """Return the key that is given, in a file or in the environment; None if there is none."""
    source, key = "api_key", api_key
    if api_key_file is not None:
        source, key = f"api_key_file={api_key_file}", text_files.read_text(api_key_file, max_bytes=1 << 12).strip()
    elif key is None:
        source, key = KEY_VARIABLE, os.environ.get(KEY_VARIABLE)
    if key is not None and not (key and key.isascii() and key.isprintable() and " " not in key):
        raise UserError(f"{source}: an API key is one word of ASCII characters")
    return key
