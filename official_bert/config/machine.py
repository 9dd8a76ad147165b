"""Early check that a model fits into the memory of this machine."""

import os
import re

from official_bert.config.bert_config import USUAL_SIZES, BertConfig
from official_bert.support import files
from official_bert.support.errors import UserError

_BYTES_OF_NUMBER = 4  # float32
_ADAM_MULTIPLE = 3  # each parameter and Adam's two moments


def check_memory(config: BertConfig, config_file: str, *, for_training: bool) -> None:
    """Check that a model fits into the memory, before anything tries to allocate it.

    Raises:
      UserError: the parameters, and in training Adam's state, need more than physical memory and swap together; the
        message names the config key that is furthest from its usual value.
    """
    needed = config.num_parameters * _BYTES_OF_NUMBER * (_ADAM_MULTIPLE if for_training else 1)
    available = _memory_and_swap()
    if available is not None and needed > available:
        name = max(USUAL_SIZES, key=lambda name: getattr(config, name) / USUAL_SIZES[name])
        raise UserError(
            f"{config_file}: {name} is {getattr(config, name)}; the model has {config.num_parameters:,} parameters and "
            f"needs {_gigabytes(needed)} {'to be trained' if for_training else 'of memory'}, but this machine has "
            f"{_gigabytes(available)}, swap included"
        )


def _memory_and_swap() -> int | None:
    """Return the bytes of physical memory and swap; None if the system does not report them."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        with files.open_file("/proc/meminfo") as source:
            swap = re.search(r"^SwapTotal:\s+(\d+) kB$", source.read(), re.MULTILINE)
    except (
        AttributeError,
        OSError,
        ValueError,
    ):  # if one is unknown, a model that fits could be rejected
        return None
    return memory + 1024 * int(swap[1]) if swap and memory > 0 else None


def _gigabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:,.1f} GB"
