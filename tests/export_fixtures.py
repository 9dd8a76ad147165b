"""Exports, shared by all tests: by the real script, and of tiny models with random weights."""

import json
import os
import random
import shutil
import zlib

import pytest

from tests.conftest import run_script, shared

AWKWARD_TEXTS = [
    "Zoë’s ﬁne café—１９８７！", "서울은 대한민국의 수도이다", "東京 tower… 👨\u200d👩\u200d👧 \u0000 \ufffd", "",
    "word " * 200, "a" * 150 + " the town",
]  # fmt: skip


def write_reviews(path, rng, count):
    # Imported here because they import TensorFlow, and the process that distributes the tests reads this file too.
    from tests.exports import LABELS
    from tests.sentences import sentence

    rows = ["text\tother\tlabel\n"]
    for _ in range(count):
        label = rng.randrange(3)
        rows.append(f"{sentence(rng, label)}\t{sentence(rng, label > 1)}\t{LABELS[label]}\n")
    path.write_text("".join(rows))


@pytest.fixture(scope="session")
def reviews(tmp_path_factory, files_of_model, one_layer_config_file):
    """Flags of a run of the real script that trained, predicted and exported on pairs of texts.

    The export is shared by all workers; the output folder is a copy, since a run locks it.
    """
    from tests.exports import OF_CLASSIFIER

    def flags_of(folder):
        return {
            **files_of_model, "bert_config_file": one_layer_config_file, "task_name": "custom",
            "data_dir": str(folder), "text_a_column": "text", "text_b_column": "other", "label_column": "label",
            "train_file": "train.tsv", "predict_file": "test.tsv", "output_dir": str(folder / "out"),
            "max_seq_length": 32, "train_batch_size": 8, "learning_rate": 1e-3,
            "export_dir": str(folder / "serving" / "reviews"),
        }  # fmt: skip

    def make(folder):
        rng = random.Random(1)
        for name, count in (("train.tsv", 64), ("test.tsv", 9)):
            write_reviews(folder / name, rng, count)
        with open(folder / "test.tsv", "a") as sink:
            sink.writelines(f"{text}\t{text[:20]}\tgood\n" for text in AWKWARD_TEXTS[:3])
        flags = flags_of(folder)
        result = run_script("run_classifier.py", "--do_train", "--do_predict", "--do_export", **flags)
        assert result.code == 0, result
        exported = f"exported {flags['export_dir']}/1, with the signatures {', '.join(OF_CLASSIFIER)}"
        assert result.last_error_line.endswith(exported)
        assert "Sharding" not in result.errors and "unsupported" not in result.errors

    flags = flags_of(shared(tmp_path_factory, "reviews", make))
    own = tmp_path_factory.mktemp("reviews") / "out"
    return {**flags, "output_dir": str(shutil.copytree(flags["output_dir"], own))}


@pytest.fixture(scope="session")
def version(reviews):
    return os.path.join(reviews["export_dir"], "1")


@pytest.fixture(scope="session")
def write_export(one_layer_config_file, vocab_file, tmp_path_factory):
    """Write the next version of a tiny model into a folder; each is made once and copied."""
    from tests.serving.tiny_exports import write_tiny_export

    files = {"bert_config_file": one_layer_config_file, "vocab_file": vocab_file}

    def write(folder, task="classification", **options):
        name = f"export-{zlib.crc32(json.dumps([task, options]).encode())}"
        made = shared(tmp_path_factory, name, lambda made: write_tiny_export(made, task, **files, **options))
        os.makedirs(folder, exist_ok=True)
        number = 1 + max((int(name) for name in os.listdir(folder)), default=0)
        copy = shutil.copytree(made / "1", os.path.join(folder, ".copy"))  # renamed when complete, since servers look
        path = os.path.join(folder, str(number))
        os.rename(copy, path)
        return path

    return write
