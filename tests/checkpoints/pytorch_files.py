"""Weights of models in `transformers`, and files in the format of `torch.save`, made without PyTorch."""

import io
import zipfile

import numpy as np

from official_bert.checkpoints.safetensors import join_parts, rules_of_layers, sizes_of

REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"


def zipped(program, **storages):
    """Return a PyTorch file with a pickle."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("archive/data.pkl", program)
        for key, content in storages.items():
            archive.writestr(f"archive/data/{key}", content)
    return sink.getvalue()


def _text(value):
    return b"X" + len(value.encode()).to_bytes(4, "little") + value.encode()


def _numbers(values):
    return b"(" + b"".join(b"I%d\n" % value for value in values) + b"t"


def pickled_tensor(size, offset, shape, strides, *, key="0", kind="storage", dtype="FloatStorage"):
    """Return the part of a pickle that creates a tensor."""
    storage = b"(" + _text(kind) + b"ctorch\n" + dtype.encode() + b"\n" + _text(key) + _text("cpu") + b"I%d\nt" % size
    return REBUILD + b"(" + storage + b"QI%d\n" % offset + _numbers(shape) + _numbers(strides) + b"I00\nNtR"


def pytorch_file(arrays):
    """Return the bytes that `torch.save` would write for a dict of float32 arrays."""
    program, storages = b"}", {}
    for number, (name, array) in enumerate(arrays.items()):
        strides = [stride // 4 for stride in array.strides]
        program += _text(name) + pickled_tensor(array.size, 0, array.shape, strides, key=str(number)) + b"s"
        storages[str(number)] = array.tobytes()
    return zipped(program + b".", **storages)


def random_weights(config, architecture, num_labels):
    """Return arrays with the names of a class in `transformers`."""
    theirs, rng, arrays = config.family.hugging_face, np.random.default_rng(0), {}
    sizes, heads = sizes_of(config) | {"C": num_labels}, theirs.heads_of_class(architecture)
    parts = theirs.parts_with(heads)
    for part in ("encoder", "pooler", *heads):
        for rule in rules_of_layers(parts.get(part, ()), config):
            shape = [sizes[letter] for letter in rule.shape]
            arrays[rule.target] = rng.normal(size=shape[::-1] if rule.is_transposed else shape).astype(np.float32)
    is_bare = architecture == theirs.architectures[()]
    return {name.removeprefix(theirs.prefix) if is_bare else name: array for name, array in join_parts(arrays).items()}
