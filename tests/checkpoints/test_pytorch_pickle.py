"""PyTorch files are read without running any code in them."""

import io
import os
import pickle
import re
import time
import zipfile

import numpy as np
import pytest
import safetensors

from official_bert.checkpoints import pytorch_pickle
from official_bert.checkpoints.safetensors import read_file
from official_bert.support.errors import UserError
from tests.checkpoints.pytorch_files import REBUILD, pickled_tensor, zipped
from tests.conftest import GOLDEN

FILES = GOLDEN / "pytorch"
KINDS = ("zip", "legacy")


@pytest.fixture
def read_tensors(tmp_path):
    """Return a function that writes a file and reads its tensors."""
    path = tmp_path / "pytorch_model.bin"

    def read(content):
        path.write_bytes(content)
        with path.open("rb") as source:
            tensors = pytorch_pickle.list_tensors(str(path), source, len(content))
        return {name: read() for name, _, _, read in tensors}

    return read


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_are_those_of_pytorch(read_tensors, kind):
    expected = dict(safetensors.deserialize((FILES / "tensors.safetensors").read_bytes()))
    found = read_tensors((FILES / f"{kind}.bin").read_bytes())
    assert found.keys() == expected.keys()
    for name, array in found.items():
        assert (list(array.shape), array.tobytes()) == (expected[name]["shape"], bytes(expected[name]["data"])), name
    assert all(found[name].dtype.name == name for name in ("float64", "float16", "bfloat16", "int64"))


class Asks:
    """An object that pickles as a function call."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(1, 5))
def test_functions_in_a_pickle_are_named_and_not_run(read_tensors, tmp_path, protocol):
    trace = tmp_path / "trace"  # a file that the pickles would create if they were run
    for name, *call in (
        (r"(posix|nt)\.system", os.system, (f"touch {trace}",)),
        (r"(builtins|__builtin__)\.exec", exec, (f"open({str(trace)!r}, 'w')",)),
        (r"(builtins|__builtin__)\.getattr", getattr, ("a", "upper")),
    ):
        with pytest.raises(UserError, match=f"asks for {name}, which weights do not need; it was not run"):
            read_tensors(zipped(pickle.dumps({"a": Asks(*call)}, protocol)))
    assert not trace.exists()


ODD = {
    "a dotted name": (b"ctorch\nstorage.os.system\n.", "asks for torch.storage.os.system"),
    "another name of a known module": (b"ctorch._utils\nos\n.", "asks for torch._utils.os"),
    "a name made while it runs": (b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02idR.", "asks for os.system"),
    "an instance": (b"(ios\nsystem\n.", "the pickle operation INST"),
    "a registered extension": (b"\x80\x02\x82\x01.", "the pickle operation EXT1, which weights do not need"),
    "attributes of a function": (REBUILD + b"}U\x08functionK\x01sb.", "has a function where weights have a dict"),
    "a call of what is no function": (b"ctorch\nFloatStorage\n)R.", "calls what is not a function of tensors"),
    "an index that takes all memory": (b"Nr\xff\xff\xff\xff.", "not contain a dict"),
    "tuples that double": (
        b"})" + b"".join(b"q%ch%c\x86" % (n, n) for n in range(60)) + b"K\x01s.", "a tuple where weights have a str"
    ),
    "a tuple in a tuple, and so on": (b"})" + b"\x85" * 10**5 + b"K\x01s.", "a tuple where weights have a str"),
    "the same by duplicates": (b"})" + b"2\x86" * 60 + b"K\x01s.", "the pickle operation DUP"),
    "lists that double": (
        b"(]" + b"".join(b"q%c](h%ch%ce" % (n, n, n) for n in range(60)) + b"U\x01aU\x01bU\x01cK\x01tQ.", "names a list"
    ),
    "a number of many digits": (b"\x8b\x00\x00\x01\x00" + b"\x01" * 65536 + b".", "the pickle operation LONG4"),
    "a parameter of no tensor": (b"ctorch._utils\n_rebuild_parameter\n(K\x01tR.", "does not contain a dict of tensors"),
    "an end that never comes": (b"(" * 100, "is damaged, truncated or not a PyTorch file"),
    "a list": (b"].", "does not contain a dict of tensors"),
    "a text under a name": (b"}X\x01\x00\x00\x00aX\x01\x00\x00\x00bs.", "has no tensor named 'a'"),
}  # fmt: skip


@pytest.mark.parametrize(("program", "message"), ODD.values(), ids=ODD)
def test_odd_programs_are_refused(read_tensors, program, message):
    with pytest.raises(UserError, match=message):
        read_tensors(zipped(program))


def one_tensor(*arguments, **options):
    """Return a pickle of one tensor."""
    return b"}X\x01\x00\x00\x00a" + pickled_tensor(*arguments, **options) + b"s."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, 1, (2, 2), (2, 1)), r"'a' of shape \[2, 2\], which does not fit its storage"),
        ((4, -1, (2,), (1,)), "does not fit its storage"),
        ((4, 0, (4,), (-1,)), "does not fit its storage"),
        ((4, 0, (10**12,), (0,)), "does not fit its storage"),
        ((4, 0, (2,) * 40, (0,) * 40), "40 dimensions, which is too many"),
        ((10**15, 0, (2,), (1,)), "which it declares; is it truncated?"),
        ((4, 0, (2,), (1, 1)), "damaged"),
    ],
)
def test_tensors_beyond_their_storage_are_refused(read_tensors, arguments, message):
    assert read_tensors(zipped(one_tensor(4, 0, (2, 2), (2, 1)), **{"0": bytes(16)}))["a"].shape == (2, 2)
    with pytest.raises(UserError, match=message):
        read_tensors(zipped(one_tensor(*arguments), **{"0": bytes(16)}))


def test_small_files_cannot_take_much_time_or_memory(tmp_path):
    """A compressed pickle, views that are larger than the file, a list that becomes many dicts."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"(" + b"]" * 2**22 + b"l.")
    view = b"X\x02\x00\x00\x00%02d" + pickled_tensor(100, 0, (100,), (1,)) + b"s"
    views = zipped(b"}" + b"".join(view.replace(b"%02d", b"%02d" % i) for i in range(99)) + b".", **{"0": bytes(400)})
    pair = b"](X\x01\x00\x00\x00aNeq\x01"
    lists = pair + b"]q\x00(" + b"h\x01" * 50_000 + b"eccollections\nOrderedDict\nq\x02" + b"h\x00\x85R"
    start = time.perf_counter()
    for content, message in (
        (sink.getvalue(), "archive/data.pkl is compressed or does not fit the file"),
        (zipped(b"]" * 2**22), "has a pickle that is too large for weights"),
        (views, "declares arrays of 39,600 bytes, but has "),
        (zipped(lists + b"h\x02h\x00\x85R" * 50_000 + b"."), "does not contain a dict of tensors|has no tensor"),
    ):
        path = tmp_path / "pytorch_model.bin"
        path.write_bytes(content)
        with pytest.raises(UserError, match=message):
            list(read_file(str(path)))
    assert time.perf_counter() - start < 20  # minutes if each dict is a copy


def test_invalid_storages_are_refused(read_tensors):
    for options, message in (
        ({"key": "../../etc/passwd"}, "lacks the storage"),
        ({"kind": "module"}, "names 'module' instead of a storage"),
        ({"dtype": "QInt8Storage"}, "asks for torch.QInt8Storage"),
    ):
        with pytest.raises(UserError, match=message):
            read_tensors(zipped(one_tensor(4, 0, (2, 2), (2, 1), **options), **{"0": bytes(16)}))
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("model.pkl", b"N.")
    with pytest.raises(UserError, match=r"without PyTorch's data\.pkl"):
        read_tensors(sink.getvalue())
    early = (FILES / "legacy.bin").read_bytes()
    key = re.search(rb"storage.{1,60}?FloatStorage.{1,60}?(\d{6,})", early, re.DOTALL)[1]
    with pytest.raises(UserError, match="lacks the storage '0"):
        read_tensors(early.replace(key, b"0" * len(key), 1))
    damaged = bytearray((FILES / "zip.bin").read_bytes())
    damaged[damaged.index(np.float32(3.5).tobytes())] ^= 1
    with pytest.raises(UserError, match="is damaged: the storage '.' differs from its checksum"):
        read_tensors(bytes(damaged))


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cut_off_anywhere_is_refused(read_tensors, kind):
    data = (FILES / f"{kind}.bin").read_bytes()
    for length in (0, 3, 100, len(data) // 2, len(data) - 30):
        with pytest.raises(UserError, match="truncated|damaged"):
            read_tensors(data[:length])
