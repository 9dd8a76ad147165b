"""Downloads models of the Hugging Face Hub, given as hf://owner/name, into the cache of its client.

The client checks the sizes of downloads. This module also checks the hash of each large file, which is its name in
the cache.
"""

import functools
import glob
import os
import re
import socket

from official_bert.support import files
from official_bert.support.errors import UserError, install_command

SCHEME = "hf://"
_NAME = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?/?")
_SETTINGS = [
    *("config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "tokenizer.json", "vocab.json", "merges.txt", "spiece.model", "sentencepiece.bpe.model"),
    *("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"),
    *("[0-9]_*/*.json", "[0-9]_*/*.txt", "[0-9]_*/*.model"),
    *("[1-9]_*/model.safetensors", "[1-9]_*/pytorch_model.bin"),
]
# In order of preference; either may be split, and sentence-transformers may keep it in the encoder's folder.
_WEIGHTS = (
    ("model*.safetensors", "0_*/model*.safetensors", "model.safetensors.index.json"),
    ("pytorch_model*.bin", "0_*/pytorch_model*.bin", "pytorch_model.bin.index.json"),
)
_SHA256 = re.compile("[0-9a-f]{64}")


def local_folder(path: str) -> str:
    """Download the needed files of a hub model and return their folder in the cache; return other paths unchanged.

    The client's environment variables apply: `HF_HOME`, `HF_HUB_OFFLINE`, `HF_TOKEN`, `HF_ENDPOINT`.
    """
    if not path.startswith(SCHEME):
        return path
    match = _NAME.fullmatch(path)
    if match is None:
        raise UserError(f"{path} is not a model name; write hf://owner/name or hf://owner/name@revision")
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError as error:
        raise UserError(f"{path} needs the client of the hub; run: {install_command('hub')}") from error
    name, revision = match.groups()
    try:
        for weights in _WEIGHTS:
            folder = huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=[*_SETTINGS, *weights])
            if any(glob.glob(os.path.join(glob.escape(folder), pattern)) for pattern in weights):
                break
    except errors.GatedRepoError as error:
        raise UserError(f"{path}: access is restricted; request it on the model's page, and set HF_TOKEN") from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(f"{path}: the model does not exist or is private; check the name, or set HF_TOKEN") from error
    except errors.RevisionNotFoundError as error:
        raise UserError(f"{path}: this model has no revision {revision!r}") from error
    except (OSError, ValueError, errors.HTTPError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UserError(f"{path} cannot be downloaded, and is not in the cache: {reason:.200}") from error
    for pattern in (*_SETTINGS, *weights):
        for file in sorted(glob.glob(pattern, root_dir=folder)):
            _check_content(path, file, os.path.realpath(os.path.join(folder, file)))
    return folder


@functools.cache  # commands ask for one folder several times
def _check_content(model: str, file: str, blob: str) -> None:
    """Raise if a large file of a model differs from its hash, which is its name in the cache."""
    wanted = os.path.basename(blob)
    if not _SHA256.fullmatch(wanted):
        return
    if files.sha256(blob) != wanted:
        raise UserError(f"{model}: {file} is damaged: its SHA-256 does not match; delete {blob} to download it again")


def is_address(text: object) -> bool:
    """Return True for a string host:port with a valid port number."""
    if not isinstance(text, str):
        return False
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) < 2**16


def check_free(port: int, name: str) -> None:
    """Check that a server can listen on a port of all addresses of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port with closing connections counts as free
        try:
            probe.bind(("", port))
        except OSError as error:
            raise UserError(f"{name}={port} cannot be used ({error.strerror}); give another port") from error
