"""Scans a pickle before it is loaded, to refuse anything that takes more time or memory than weights need."""

import io
import pickletools

MAX_BYTES = 2**26  # enough for names and shapes; the numbers are outside the pickle
_MAX_MEMO = 2**20  # a larger index would make Python allocate memory up to it
_MAX_NUMBER = 2**100
_MAX_ITEMS = 1000  # size of a tuple with all nested tuples, counted as often as hashing visits them
_REFUSED = ("DUP", "FROZENSET")  # these could nest existing objects in themselves
_STORING = ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE")
_MARK = -1


class PickleError(ValueError):
    """The file is damaged or requests what weights do not need; the message continues the file's name."""


def check_pickle(stream: io.BytesIO) -> None:
    """Raise PickleError if a pickle is too large for weights; nothing is run, and the stream position is kept.

    Other exceptions mean that the pickle is damaged.
    """
    start = stream.tell()
    stack: list[int] = []  # number of items of each object on the pickle's stack; 0 if it is not a tuple
    memo: dict[int, int] = {}
    for operation, argument, position in pickletools.genops(stream):
        name = operation.name
        is_large = isinstance(argument, int) and abs(argument) > _MAX_NUMBER
        is_large |= name in ("PUT", "LONG_BINPUT") and argument > _MAX_MEMO
        if is_large or name in _REFUSED or position - start > MAX_BYTES:
            raise PickleError("has a pickle that is too large for weights")
        if name in _STORING:
            memo[len(memo) if name == "MEMOIZE" else argument] = stack[-1]
            continue
        items = _popped(stack, operation.stack_before)
        pushed = [_MARK if kind is pickletools.markobject else 0 for kind in operation.stack_after]
        if name.endswith("GET"):
            pushed = [memo[argument]]
        elif "TUPLE" in name:
            pushed = [1 + sum(items) + len(items)]
            if pushed[0] > _MAX_ITEMS:
                raise PickleError("has nested tuples that are too large for weights")
        stack += pushed
    stream.seek(start)


def _popped(stack: list[int], kinds: list) -> list[int]:
    """Pop an operation's arguments from the stack; return those after the mark, or all."""
    start = len(stack) - len(kinds)
    if pickletools.markobject in kinds:
        mark = len(stack) - 1 - stack[::-1].index(_MARK)
        items, start = stack[mark + 1 :], mark - kinds.index(pickletools.markobject)
    else:
        items = stack[start:]
    if start < 0:
        raise ValueError("it pops from an empty stack")
    del stack[start:]
    return items
