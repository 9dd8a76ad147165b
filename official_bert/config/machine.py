"""The memory of this machine: what can never fit into it is refused early."""

import os
import re

from official_bert.config.bert_config import USUAL_SIZES, BertConfig
from official_bert.support import files
from official_bert.support.errors import UserError

_BYTES_OF_NUMBER = 4  # float32
_ADAM_MULTIPLE = 3  # each parameter, and the two means that Adam keeps of its gradient


def check_memory(config: BertConfig, config_file: str, *, for_training: bool) -> None:
    """Raise if a model can never fit into this machine, before anything tries to allocate it.

    Raises:
      UserError: the parameters, when training also Adam's state, need more than the physical memory and the swap
        together; the message names the size that is furthest from the usual.
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
    """Bytes of physical memory and swap; None where the system does not report it."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        with files.open_file("/proc/meminfo") as source:
            swap = re.search(r"^SwapTotal:\s+(\d+) kB$", source.read(), re.MULTILINE)
    except (
        AttributeError,
        OSError,
        ValueError,
    ):  # neither is known everywhere; too much could be refused
        return None
    return memory + 1024 * int(swap[1]) if swap and memory > 0 else None


def _gigabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:,.1f} GB"
