"""`edit_checkpoint`: new models from the weights of others."""

import json
import os
import shutil

import numpy as np
import pytest

from official_bert.checkpoints.bundle import is_training_state, write_checkpoint
from official_bert.checkpoints.editing import with_positions
from official_bert.families.albert import AlbertConfig
from official_bert.families.bert import RobertaConfig
from official_bert.families.deberta import DebertaConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.training.run_folder import read_labels
from tests.commands.conftest import MODEL_FILES, arrays_of
from tests.conftest import GOLDEN, assert_refused, prints_error, run_here

pytestmark = pytest.mark.slow


@pytest.fixture
def checkpoints(tmp_path, model_dir):
    """Checkpoints of two runs of one architecture, with optimizer state and the model's files."""
    arrays, rng = arrays_of(model_dir / "bert_model.ckpt"), np.random.default_rng(1)
    paths = []
    for number in range(2):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        (folder / "bert_config.json").write_text((model_dir / "bert_config.json").read_text())
        weights = {name: array + rng.normal(0, 0.1, array.shape).astype(np.float32) for name, array in arrays.items()}
        slots = {f"{name}/adam_m": array for name, array in weights.items()}
        prefix = str(folder / f"model.ckpt-{number + 7}")
        write_checkpoint(prefix, {**weights, **slots, "global_step": np.int64(number + 7)})
        paths.append(prefix)
    (tmp_path / "run0" / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    return paths


def average(tmp_path, *paths):
    run_here("edit_checkpoint", init_checkpoint=",".join(paths), output_dir=str(tmp_path / "out"))
    return tmp_path / "out"


def test_the_average_is_that_of_every_number(checkpoints, tmp_path, model_dir):
    out = average(tmp_path, *checkpoints)
    found, (first, second) = arrays_of(out / "bert_model.ckpt"), map(arrays_of, checkpoints)
    assert found.keys() == {name for name in first if not is_training_state(name, first)}
    for name, array in found.items():
        np.testing.assert_allclose(array, (first[name].astype(np.float64) + second[name]) / 2, rtol=1e-6)
        assert array.dtype == np.float32
    assert sorted(os.listdir(out)) == MODEL_FILES
    assert BertEncoder.from_checkpoint(str(out)).config.num_hidden_layers == 3


def test_the_labels_of_a_classifier_stay_and_the_settings_of_its_texts_are_told(tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    finished = shutil.copytree(GOLDEN / "families" / "answers" / "bert_labels", tmp_path / "finished")
    (finished / "tokenizer_config.json").write_text('{"do_lower_case": true, "strip_accents": false}')
    average(tmp_path, str(finished))
    assert "use it with --do_lower_case=true --strip_accents=false" in caplog.text
    assert read_labels(str(tmp_path / "out")) == read_labels(str(finished)) == ["bad, sad", "soso", "naïf"]
    masked = shutil.copytree(GOLDEN / "families" / "bert" / "ForPreTraining", tmp_path / "masked")
    config = json.loads((masked / "config.json").read_text())
    (masked / "config.json").write_text(json.dumps({**config, "id2label": {"0": "LABEL_0", "1": "LABEL_1"}}))
    run_here("edit_checkpoint", init_checkpoint=str(masked), output_dir=str(tmp_path / "other"))
    assert read_labels(str(tmp_path / "other")) is None  # without a classifier, names are those of no weights


def test_checkpoints_that_cannot_be_averaged(checkpoints, tmp_path, model_dir):
    arrays = arrays_of(checkpoints[0])
    smaller = {f"bert/pooler/dense/{name}": np.zeros(3, "f4") for name in ("bias", "kernel")}
    write_checkpoint(str(tmp_path / "run0" / "smaller.ckpt"), {**arrays, **smaller})
    kernel = r"\[3\] in the second, bert/pooler/dense/kernel is"
    with prints_error(rf"bert/pooler/dense/bias is \[32\] in the first and {kernel}"):
        average(tmp_path, checkpoints[0], str(tmp_path / "run0" / "smaller.ckpt"))
    with prints_error("model.ckpt-7 is given twice; leave it out once"):
        average(tmp_path, checkpoints[0], checkpoints[0])
    with prints_error("init_checkpoint .*absent: no such checkpoint"):
        average(tmp_path, checkpoints[0], str(tmp_path / "absent"))
    config = json.loads((model_dir / "bert_config.json").read_text())
    (tmp_path / "run1" / "bert_config.json").write_text(json.dumps({**config, "hidden_act": "relu"}))
    with prints_error("ckpt-7 and .*ckpt-8 are of different models, as the bert_config.json beside"):
        average(tmp_path, *checkpoints)
    (tmp_path / "run1" / "bert_config.json").unlink()
    average(tmp_path, *checkpoints)
    with prints_error("output_dir=.*out/.* exists already; give another folder"):
        average(tmp_path, *checkpoints)
    with prints_error("must be a comma-separated list of checkpoints"):
        average(tmp_path, "a", "")


@pytest.fixture
def student_of(files_of_model, tmp_path):
    def make(**flags):
        given = {**files_of_model, "output_dir": tmp_path / "student", **flags}
        run_here("edit_checkpoint", **{name: value for name, value in given.items() if value is not None})
        return tmp_path / "student"

    return make


@pytest.mark.parametrize(
    ("flags", "taken"),
    [({"num_layers": 2}, [0, 1]), ({"layers": "-1"}, [2]), ({"layers": "0,1,2,0,1,2"}, [0, 1, 2, 0, 1, 2])],
)
def test_layers_are_taken_as_they_are(student_of, model_dir, flags, taken):
    student = student_of(**flags)
    found, expected = arrays_of(student / "bert_model.ckpt"), arrays_of(model_dir / "bert_model.ckpt")
    layers = {name.split("/")[2] for name in found if name.startswith("bert/encoder/")}
    assert layers == {f"layer_{number}" for number in range(len(taken))}
    for name, array in found.items():
        parts = name.split("/")
        if parts[1] == "encoder":
            parts[2] = f"layer_{taken[int(parts[2].removeprefix('layer_'))]}"
        np.testing.assert_array_equal(array, expected["/".join(parts)], err_msg=name)
    assert set(expected) - set(found) <= {name for name in expected if name.startswith("bert/encoder/")}
    # Vectors after the first layer equal those after the other model's first layer.
    ids = np.array([[2, 75, 9, 3]])
    encoder = BertEncoder.from_checkpoint(str(student))
    other = BertEncoder.from_checkpoint(str(model_dir / "bert_model.ckpt"))
    if taken[0] == 0:
        np.testing.assert_allclose(encoder(ids)["encoder_layers"][0], other(ids)["encoder_layers"][0], atol=1e-6)
    assert (student / "vocab.txt").read_bytes()


def test_students_that_there_cannot_be(student_of, tmp_path, model_dir):
    config = json.loads((model_dir / "bert_config.json").read_text())
    other, shorter = tmp_path / "other.json", tmp_path / "shorter.json"
    other.write_text(json.dumps({**config, "num_hidden_layers": 2}))
    shorter.write_text(json.dumps({**config, "max_position_embeddings": 32}))
    positions = "position_embeddings has 64 rows, but the model config has 32 positions"
    for flags, message in (
        ({"max_position_embeddings": 150, "bert_config_file": shorter}, positions),
        ({"num_layers": 4}, "num_layers=4: .*bert_config.json has 3 layers; give at most 3"),
        ({"layers": "0,3"}, "layers=0,3: there is no layer 3"),
        ({"num_layers": 1, "layers": "0"}, "--num_layers and --layers exclude each other"),
        ({"num_layers": 1, "bert_config_file": other}, "has 3 layers, .*other.json 2; use"),
    ):
        with prints_error(message):
            student_of(**flags)
    albert = BertEncoder(AlbertConfig(**{**config, "embedding_size": 8})).save_checkpoint(tmp_path / "albert")
    with prints_error("is of an ALBERT, whose layers share their weights; for another number of lay"):
        student_of(init_checkpoint=albert, bert_config_file=str(tmp_path / "albert" / "bert_config.json"), num_layers=1)
    modern = {"init_checkpoint": GOLDEN / "families" / "modernbert" / "ForMaskedLM", "bert_config_file": None}
    for layers in ("0,1,0,1", "1,2"):
        with prints_error("the first layer of this model has other arrays than the others; take it f"):
            student_of(**modern, vocab_file=None, layers=layers)
    assert not (tmp_path / "student").exists()


def test_an_average_is_changed_if_its_architecture_is_known(checkpoints, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    flags = {"init_checkpoint": ",".join(checkpoints), "num_layers": 2, "output_dir": tmp_path / "a"}
    run_here("edit_checkpoint", **flags)
    assert "averaged 2 checkpoints" in caplog.text and "took the layers 0, 1: " in caplog.text
    for number in range(2):
        (tmp_path / f"run{number}" / "bert_config.json").unlink()
    flags["output_dir"] = tmp_path / "b"
    assert_refused("edit_checkpoint", flags, "changing layers, positions or the vocabulary needs --bert_config_file")
    del flags["num_layers"]
    run_here("edit_checkpoint", **flags)
    assert "there is no bert_config.json beside the checkpoint" in caplog.text


def test_positions_are_repeated_and_all_else_stays(student_of, model_dir, vocab_file):
    folder = student_of(max_position_embeddings=150)
    old, new = (BertEncoder.from_checkpoint(str(path)) for path in (model_dir / "bert_model.ckpt", folder))
    assert (old.max_length, new.max_length) == (64, 150)
    table, longer = (np.asarray(encoder.embeddings.position_embeddings) for encoder in (old, new))
    np.testing.assert_array_equal(longer, np.concatenate([table, table, table[:22]]))
    ids = np.arange(60)[None] + 5
    np.testing.assert_array_equal(new(ids)["sequence_output"], old(ids)["sequence_output"])
    assert new(np.tile(ids, 2))["sequence_output"].shape == (1, 120, 32)
    assert (folder / "vocab.txt").read_bytes() == open(vocab_file, "rb").read()


def test_rows_that_are_no_positions_stay_at_the_beginning():
    config = RobertaConfig(vocab_size=9, max_position_embeddings=6)
    name, table = "bert/embeddings/position_embeddings", np.arange(6.0)[:, None]
    assert with_positions({name: table}, config, 11)[name][:, 0].tolist() == [0, 1, 2, 3, 4, 5, 2, 3, 4, 5, 2]
    with prints_error("max_position_embeddings=600: a DeBERTa has no embeddings of positions"):
        with_positions({}, DebertaConfig(vocab_size=9), 600)
