"""Whole runs with --teacher: stored outputs, what a student learns, and teachers that do not fit."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.data.pipeline import training_batches
from official_bert.data.record_files import read_records
from official_bert.inference.predictor import Predictor
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.tasks.pretraining.options import PretrainingConfig
from official_bert.tasks.pretraining.task import DistilledPretrainingTask, PretrainingTask
from tests.commands.conftest import assert_same_arrays, converted, json_lines, other_vocabulary, without_dropout
from tests.conftest import GOLDEN, assert_refused, run_here

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def base(sst2, files_of_model):
    """The flags required by every run of the classifier."""
    return {**sst2, **files_of_model, "do_train": True}


@pytest.fixture(scope="module")
def teacher(base, tmp_path_factory):
    """Output folder of a finished run."""
    folder = str(tmp_path_factory.mktemp("teacher") / "out")
    run_here("run_classifier", **{**base, "output_dir": folder})
    return folder


@pytest.fixture
def student(base, one_layer_config_file, teacher, tmp_path):
    """Flags of a student with one third of the layers."""
    return {
        **base, "bert_config_file": one_layer_config_file, "teacher": teacher, "output_dir": str(tmp_path / "student"),
    }  # fmt: skip


def stored_logits(path):
    records = [tf.train.Example.FromString(record).features.feature for record in read_records(path)]
    return np.array([record["teacher_logits"].float_list.value for record in records]), records


def test_each_record_contains_the_teachers_logits(student, teacher, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    run_here("run_classifier", **student, do_eval=True)
    logits, records = stored_logits(f"{student['output_dir']}/train.teacher.tf_record")
    plain = [tf.train.Example.FromString(record) for record in read_records(f"{student['output_dir']}/train.tf_record")]
    assert [dict(record.features.feature) for record in plain] == [
        {name: value for name, value in record.items() if name != "teacher_logits"} for record in records
    ]
    rows = open(f"{student['data_dir']}/train.tsv").read().splitlines()[1:]
    answers = Predictor(teacher)([row.split("\t")[0] for row in rows])
    expected = np.array([[answer.probabilities[label] for label in "01"] for answer in answers])
    np.testing.assert_allclose(tf.nn.softmax(logits), expected, atol=1e-5)
    assert np.ptp(expected[:, 0]) > 1e-3  # a hundred times the tolerance
    assert json_lines(f"{student['output_dir']}/metrics.jsonl")[0]["soft_target_loss"] > 0

    caplog.clear()
    run_here("run_classifier", **{**student, "num_train_epochs": 1.2})
    assert "train.teacher.tf_record is up to date" in caplog.text
    assert "using the weights of" not in caplog.text
    other = as_hugging_face(teacher, tmp_path / "other")
    run_here("run_classifier", **{**student, "teacher": other, "num_train_epochs": 1.4})
    others, _ = stored_logits(f"{student['output_dir']}/train.teacher.tf_record")  # evaluated again
    np.testing.assert_allclose(others, 2 * logits, atol=1e-4)


def as_hugging_face(teacher, folder):
    """Write a teacher as a Hugging Face folder, with doubled logits and its labels in reverse order."""
    converted(teacher, folder)
    arrays = safetensors.numpy.load_file(folder / "model.safetensors")
    arrays |= {name: 2 * arrays[name][::-1] for name in ("classifier.weight", "classifier.bias")}
    safetensors.numpy.save_file(arrays, folder / "model.safetensors")
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | {"id2label": {"0": "1", "1": "0"}}))
    return str(folder)


def test_teachers_that_do_not_fit_are_refused(student, teacher, tmp_path, files_of_model):
    def refuse(changes, *parts):
        assert_refused("run_classifier", {**student, **changes}, *parts)

    headless = {"teacher": str(GOLDEN / "pretraining_model/bert_model.ckpt"), "output_dir": str(tmp_path / "out")}
    refuse(headless, "bert_model.ckpt lacks output_weights, output_bias: it belongs to another model, or was not")
    other_size = shutil.copytree(teacher, tmp_path / "other_size")
    sizes = json.loads((other_size / "bert_config.json").read_text())
    (other_size / "bert_config.json").write_text(json.dumps(sizes | {"intermediate_size": 7}))
    refuse({**headless, "teacher": str(other_size)}, "other_size", "does not fit the model", "intermediate/dense")
    assert {path.name for path in (tmp_path / "out").glob("*")} <= {".lock"}  # nothing was written before
    vocab_file = other_vocabulary(files_of_model["vocab_file"], tmp_path)
    refuse({"vocab_file": vocab_file}, "is not the vocabulary that --teacher=", "other.txt")
    refuse({"do_lower_case": False}, "do_lower_case=False, but the checkpoints in", "or another teacher")
    copied = shutil.copytree(teacher, tmp_path / "copied")
    (copied / "labels.json").write_text('["no", "yes"]')
    refuse({"teacher": str(copied)}, "'no', 'yes'", "or another teacher")
    settings = json.loads((copied / "run_config.json").read_text())
    (copied / "run_config.json").write_text(json.dumps({**settings, "task": "tagging"}))
    refuse({"teacher": str(copied)}, "was trained for tagging, not for classification; use a teacher of the same")
    refuse({"teacher": None, "soft_target_weight": 0.7}, "--soft_target_weight needs --teacher")
    refuse({"trainable_encoder": False}, "--teacher cannot be used with --notrainable_encoder")
    refuse({"do_train": False, "do_eval": True}, "--teacher needs --do_train")


@pytest.fixture
def pretraining(records_file, model_dir, tmp_path):
    """Flags of pretraining without dropout, with the golden model as the teacher."""
    return {
        "input_file": records_file, "output_dir": str(tmp_path / "out"), "teacher": f"{model_dir}/bert_model.ckpt",
        "log_steps": 1,
        "bert_config_file": without_dropout(model_dir / "bert_config.json", tmp_path), "max_seq_length": 64,
        "max_predictions_per_seq": 10, "train_batch_size": 8, "num_train_steps": 3, "num_warmup_steps": 1,
        "do_train": True, "learning_rate": 1e-3,
    }  # fmt: skip


def test_the_loss_of_the_teacher_s_words_is_a_divergence(pretraining, model_dir, tmp_path, records_file):
    """Computed here for one batch, from the outputs of two models."""
    config = BertConfig.from_json_file(without_dropout(pretraining["bert_config_file"], tmp_path, num_hidden_layers=1))
    plain = PretrainingTask(config, max_seq_length=64, max_predictions_per_seq=10, eval_batch_size=8)
    task = DistilledPretrainingTask(plain, config, PretrainingConfig(**pretraining, distillation_temperature=2.0))
    model = task.build_model()
    batch = next(iter(training_batches([records_file], task.schema, batch_size=4, num_records=100, seed=1)))
    outputs = model(batch)
    losses = task.losses(outputs, batch)
    golden = PretrainingModel.from_checkpoint(f"{model_dir}/bert_model.ckpt")
    inputs = {name: batch[name] for name in golden.INPUTS}
    p = tf.nn.softmax(golden(inputs)["masked_lm_logits"] / 2).numpy().astype(np.float64)
    q = tf.nn.softmax(outputs.outputs["masked_lm_logits"] / 2).numpy().astype(np.float64)
    weights = batch["masked_lm_weights"].numpy()
    expected = 5 * 4 * np.sum(np.sum(p * np.log(p / q), axis=-1) * weights)
    assert float(losses["soft_target"].total) == pytest.approx(expected, rel=1e-4)
    of_labels = plain.losses(outputs.outputs, batch)["masked_lm"].total
    assert float(losses["masked_lm"].total) == pytest.approx(2 * float(of_labels), rel=1e-5)
    assert float(losses["soft_target"].weight) == pytest.approx(weights.sum(), rel=1e-4)
    ids = [batch[name] for name in golden.INPUTS[:3]]
    first, second = (part.encoder(*ids)["sequence_output"].numpy() for part in (golden, model))
    cosine = np.sum(first * second, -1) / np.linalg.norm(first, axis=-1) / np.linalg.norm(second, axis=-1)
    expected = np.sum((1 - cosine) * batch["input_mask"].numpy())
    assert float(losses["cosine"].total) == pytest.approx(expected, rel=1e-4)
    found, expected = task.predictions(outputs, batch), plain.predictions(outputs.outputs, batch)
    assert_same_arrays(found, expected)


def test_teachers_of_pretraining_that_do_not_fit_are_refused(pretraining, tmp_path, model_dir):
    def refuse(changes, *parts):
        assert_refused("run_pretraining", {**pretraining, **changes}, *parts)

    config_file = pretraining["bert_config_file"]
    (tmp_path / "narrow").mkdir()
    narrow = without_dropout(config_file, tmp_path / "narrow", hidden_size=16, num_attention_heads=2)
    refuse({"bert_config_file": narrow}, "hidden_size", "cannot be compared; give --cosine_weight=0")
    vocab_size = json.loads(open(config_file).read())["vocab_size"]
    (tmp_path / "large").mkdir()
    large = without_dropout(config_file, tmp_path / "large", vocab_size=vocab_size + 1)
    refuse({"bert_config_file": large}, f"vocab_size={vocab_size} and the student {vocab_size + 1}")
    headless = str(tmp_path / "headless")
    BertEncoder.from_checkpoint(f"{model_dir}/bert_model.ckpt").save_checkpoint(headless)
    refuse({"teacher": headless}, "cls/predictions", headless)
    (tmp_path / "headless" / "bert_config.json").unlink()
    refuse({"teacher": headless}, "there is no bert_config.json beside", "copy it there")
    refuse({"teacher": str(tmp_path / "none")}, str(tmp_path / "none"))
    short = BertConfig(**{**json.loads(open(config_file).read()), "max_position_embeddings": 32})
    BertEncoder(short).save_checkpoint(str(tmp_path / "short"))
    refuse({"teacher": str(tmp_path / "short")}, "max_seq_length=64 exceeds max_position_embeddings=32 of teacher=")
    refuse({"teacher": None, "masked_lm_weight": 1.0}, "--masked_lm_weight needs --teacher")
