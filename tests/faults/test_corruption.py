"""Damaged files are refused by name, or the damage has no effect; never a traceback or a wrong result.

In files with checksums (records, checkpoints, exports) any damage with an effect must be noticed. Damage that
leaves text well-formed, such as another number in a config, cannot be; there only a traceback is an error.
"""

import os
import random
import shutil
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from official_bert.checkpoints.safetensors import from_hf, read_folder
from official_bert.config.bert_config import BertConfig
from official_bert.data.batches import reporting_damaged_records
from official_bert.data.pipeline import evaluation_batches
from official_bert.data.record_files import check_first_record, count_records
from official_bert.inference.predictor import Predictor
from official_bert.support.errors import UserError
from official_bert.tasks.pretraining.data import PRETRAINING_SCHEMA
from official_bert.tasks.pretraining.options import PretrainingConfig
from official_bert.tokenization.vocab import Vocabulary
from official_bert.training.run_folder import read_run_config, write_run_config
from tests.conftest import run_here
from tests.record_files import arrays_of

pytestmark = pytest.mark.slow

ENDS = ("index", "data-00000-of-00001")
TEXTS = [("the harbour woke", "before the town"), ("", "the boats")]
SCHEMA = PRETRAINING_SCHEMA.sized(S=64, P=10, V=2000, T=2)


def flip_bits(content, rng):
    damaged = bytearray(content)
    for _ in range(rng.choice((1, 1, 8))):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def truncate(content, rng):
    return content[: rng.randrange(len(content))]


def empty(content, rng):
    return b""


def fill_with_zeros(content, rng):
    start = rng.randrange(len(content))
    length = min(rng.choice((1, 64, 4096)), len(content) - start)
    return content[:start] + bytes(length) + content[start + length :]


def swap_parts(content, rng):
    first, second = sorted(rng.sample(range(len(content)), 2)) if len(content) > 1 else (0, 0)
    return content[second:] + content[first:second] + content[:first]


def repeat_end(content, rng):
    return content + content[rng.randrange(len(content)) :]


DAMAGES = (flip_bits, flip_bits, truncate, truncate, empty, fill_with_zeros, swap_parts, repeat_end)


def read_records(folder):
    path = str(folder / "train.tfrecord")
    check_first_record(path, SCHEMA)
    with reporting_damaged_records([path], SCHEMA):
        num_records = count_records(path)
        batches = list(evaluation_batches([path], SCHEMA, batch_size=32).as_numpy_iterator())
    return {"count": np.array(num_records), **{f"{i} {n}": v for i, b in enumerate(batches) for n, v in b.items()}}


def read_hf(folder):
    config = BertConfig.from_json_file(str(folder / "config.json"))
    return from_hf(read_folder(str(folder), config), config, str(folder)).arrays


def ask(folder):
    return {"answers": np.array([result.probability for result in Predictor(str(folder))(TEXTS)])}


class Target(NamedTuple):
    names: tuple[str, ...]  # in the folder that is read
    read: Callable  # returns arrays by name if damage must be noticed
    is_noticed: bool = False  # whether damage with an effect must be noticed
    num_damages: int = len(DAMAGES)  # per file


TARGETS = {
    "checkpoint": Target((*(f"model.ckpt-7.{end}" for end in ENDS), "checkpoint"), arrays_of, is_noticed=True),
    "records": Target(("train.tfrecord",), read_records, is_noticed=True),
    "architecture": Target(
        ("bert_config.json",), lambda folder: BertConfig.from_json_file(f"{folder}/bert_config.json")
    ),
    "vocabulary": Target(("vocab.txt",), lambda folder: Vocabulary.from_file(f"{folder}/vocab.txt")),
    "settings of a run": Target(("run_config.json",), lambda folder: read_run_config(str(folder))),
    "Hugging Face folder": Target(("config.json", "model.safetensors"), read_hf),
    "export": Target(
        (
            *("saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"),
            *("checksums.json", "official_bert.json", "assets/vocab.txt"),
        ),
        ask,
        is_noticed=True,
        num_damages=4,
    ),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory, model_dir, files_of_model, records_file, write_export):
    root = tmp_path_factory.mktemp("intact")
    checkpoint = root / "checkpoint"
    checkpoint.mkdir()
    for end in ENDS:
        shutil.copy(model_dir / f"bert_model.ckpt.{end}", checkpoint / f"model.ckpt-7.{end}")
    (checkpoint / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"\n')
    vocab_file = files_of_model["vocab_file"]
    kinds = {"records": records_file, "architecture": model_dir / "bert_config.json", "vocabulary": vocab_file}
    for name, source in kinds.items():
        (root / name).mkdir()
        shutil.copy(source, root / name)
    files = {"input_file": "records", "output_dir": "out", "bert_config_file": "bert_config.json"}
    write_run_config(str(root / "settings of a run"), PretrainingConfig(**files, do_train=True))
    hf = root / "Hugging Face folder"
    run_here("convert_hf_checkpoint", to_hf=True, output_dir=str(hf), **files_of_model)
    shutil.copytree(write_export(root / "serving"), root / "export")
    return root


def outcome(target, folder):
    try:
        return target.read(folder)
    except UserError as error:
        assert str(error) and "\n" not in str(error).strip(), error
        return str(error)


def is_refused(found):
    return isinstance(found, str)


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_files_are_refused_or_change_nothing(folders, tmp_path, name):
    target, intact = TARGETS[name], folders / name
    expected = target.read(intact)
    rng = random.Random(zlib.crc32(name.encode()))
    folder = tmp_path / "damaged"
    shutil.copytree(intact, folder)
    num_noticed = 0
    for file in target.names:
        content = (intact / file).read_bytes()
        for number, damage in enumerate(DAMAGES[: target.num_damages]):
            (folder / file).write_bytes(damage(content, rng))
            found = outcome(target, folder)
            what = f"{file}, damage {number} ({damage.__name__}): {found if is_refused(found) else ''}"
            if is_refused(found):
                num_noticed += 1
                assert folder.name in found or os.path.basename(file) in found, what
            elif target.is_noticed:
                assert found.keys() == expected.keys(), what
                for key, values in expected.items():
                    np.testing.assert_array_equal(found[key], values, err_msg=what)
        (folder / file).write_bytes(content)
    assert num_noticed, "nothing was noticed at all"
    assert not is_refused(outcome(target, folder))  # intact again
