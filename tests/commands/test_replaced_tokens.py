"""ELECTRA's pretraining, compared with `transformers`, and what its checkpoints are used for."""

import itertools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.bundle import CheckpointReader, write_checkpoint
from official_bert.config.bert_config import BertConfig
from official_bert.inference.predictor import Predictor
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.pretraining import ReplacedTokenModel, sample
from official_bert.tasks.pretraining.task import ReplacedTokenTask
from official_bert.training.loop import Trainer
from official_bert.training.run_folder import read_results
from official_bert.training.task import TrainingPlan
from tests.commands.conftest import assert_same_arrays, converted, json_lines, of_run
from tests.conftest import GOLDEN, UNMASKED_RECORDS, assert_refused, golden_arrays, run_here


def stored_arrays(prefix):
    """Return the arrays of a checkpoint under the names in the file, without those of training."""
    reader = tf.train.load_checkpoint(prefix)
    names = [name for name in reader.get_variable_to_shape_map() if "/adam_" not in name and "/" in name]
    return {name: reader.get_tensor(name) for name in names}


@pytest.mark.slow
def test_ten_steps_are_those_of_transformers_under_the_original_names(tmp_path, monkeypatch):
    golden = golden_arrays("electra_pretraining/trajectory.npz")
    parts = {}
    for name, array in golden.items():
        part, _, name = name.partition("/")
        parts.setdefault(part, {})[name] = array
    write_checkpoint(str(tmp_path / "released.ckpt"), parts["initial"])
    noise = tf.constant(parts["in"].pop("noise"))
    monkeypatch.setattr(keras.random, "uniform", lambda shape, **_: noise)
    types = {name: np.float32 if values.dtype == np.float32 else np.int32 for name, values in parts["in"].items()}
    batches = {name: values.astype(types[name]) for name, values in parts["in"].items()}
    batches = tf.data.Dataset.from_tensor_slices(batches)
    config = BertConfig.from_json_file(str(GOLDEN / "electra_pretraining" / "bert_config.json"))
    sizes = {"max_seq_length": 9, "max_predictions_per_seq": 3, "eval_batch_size": 4}
    trainer = Trainer(ReplacedTokenTask(config, generator_size=0.5, **sizes), tf.distribute.get_strategy(), seed=1)
    constant = {"learning_rate": 1e-3, "lr_schedule": "constant", "log_steps": 1}
    plan = TrainingPlan(train_batch_size=4, num_train_steps=10, **constant)
    out = str(tmp_path / "out")
    trainer.train(plan, lambda _: batches, output_dir=out, init_checkpoint=str(tmp_path / "released.ckpt"))
    lines = json_lines(tmp_path / "out" / "metrics.jsonl")
    losses = [[line["masked_lm_loss"], line["replaced_token_loss"]] for line in lines]
    np.testing.assert_allclose(losses, golden["losses"], rtol=1e-5)
    found, final = stored_arrays(f"{out}/model.ckpt-10"), parts["final"]
    assert found.keys() - final.keys() == {"electra/pooler/dense/kernel", "electra/pooler/dense/bias"}
    for name, array in final.items():
        np.testing.assert_allclose(found[name], array, atol=1e-5, err_msg=name)
    assert max(np.abs(final[name] - array).max() for name, array in parts["initial"].items()) > 0.02


def test_samples_follow_the_softmax():
    logits = np.log([0.6, 0.3, 0.1]) + np.zeros([400, 25, 1], np.float32)
    sampled = np.asarray(sample(tf.constant(logits, tf.float32), 3))
    shares = np.bincount(sampled.ravel(), minlength=3) / sampled.size
    np.testing.assert_allclose(shares, [0.6, 0.3, 0.1], atol=3 * np.sqrt(0.25 / sampled.size))


def test_scores_count_each_real_token_once():
    config = BertConfig.from_json_file(str(GOLDEN / "electra_pretraining" / "bert_config.json"))
    sizes = {"max_seq_length": 4, "max_predictions_per_seq": 2, "eval_batch_size": 2}
    task = ReplacedTokenTask(config, generator_size=0.5, **sizes)
    logits = np.array([[-1, 2, -3, 1], [-1, 1, 0.5, 9], [-2, -1, -1, 4]], np.float32)
    is_replaced = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]], bool)
    mask = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]])
    outputs = {
        "masked_lm_logits": np.zeros([3, 2, 33], np.float32), "sampled_ids": np.array([[8, 9], [1, 0], [7, 7]]),
        "is_replaced": is_replaced, "replaced_token_logits": logits,
    }  # fmt: skip
    weights = np.array([[1, 1], [1, 0], [1, 0]], np.float32)
    batch = {"masked_lm_ids": np.array([[8, 8], [1, 0], [6, 0]]), "masked_lm_weights": weights, "input_mask": mask}
    given = [
        {name: tf.constant(value.astype(np.int32) if value.dtype == int else value) for name, value in each.items()}
        for each in (outputs, batch)
    ]
    scores = task.scores({name: np.asarray(value) for name, value in task.predictions(*given).items()})
    losses = np.log1p(np.exp(np.where(is_replaced, -logits, logits))) * mask  # [B, S]
    of_batches = [losses[:2].sum() / 7, losses[2:].sum() / 2]
    assert scores == pytest.approx(
        {
            "loss": np.log(33) + 50 * np.mean(of_batches), "masked_lm_accuracy": 0, "masked_lm_loss": np.log(33),
            "sampled_masked_lm_accuracy": 2 / 4, "replaced_token_accuracy": 6 / 9, "replaced_token_precision": 2 / 4,
            "replaced_token_recall": 2 / 3, "replaced_token_loss": losses.sum() / 9,
        }, rel=1e-4,
    )  # fmt: skip


@pytest.fixture(scope="module")
def flags(tmp_path_factory, records_file):
    """Flags of a run with dropout, except its folder."""
    config = json.loads((GOLDEN / "electra_pretraining" / "bert_config.json").read_text())
    config |= {"vocab_size": 1182, "max_position_embeddings": 64, "hidden_dropout_prob": 0.1}
    path = tmp_path_factory.mktemp("electra") / "electra.json"
    path.write_text(json.dumps(config))
    return {
        "objective": "replaced_tokens", "generator_size": 0.25, "input_file": records_file, "bert_config_file": path,
        "max_seq_length": 64, "max_predictions_per_seq": 10, "train_batch_size": 8, "num_warmup_steps": 1,
        "learning_rate": 1e-3, "do_train": True,
    }  # fmt: skip


@pytest.fixture(scope="module")
def run(flags, tmp_path_factory):
    """The folder of a run, evaluated and exported."""
    out = tmp_path_factory.mktemp("run")
    export = {"do_export": True, "export_dir": out / "export", "export_format": "tflite"}
    run_here("run_pretraining", **flags, **export, num_train_steps=4, do_eval=True, output_dir=out)
    return out


OF_BERT = GOLDEN / "pretraining_model" / "bert_config.json"
TEXT = "the [MASK] town was [MASK] ."


@pytest.mark.slow
def test_the_generator_fills_masks_in_a_run_an_export_and_a_hugging_face_folder(run, flags, corpus_file, tmp_path):
    results = read_results(str(run / "eval_results.txt"))
    assert 0 < results["replaced_token_accuracy"] <= 1 < results["masked_lm_loss"]
    folders = (run, run / "export", converted(run, tmp_path / "hf", generator=True))
    words, *others = [[*itertools.chain(*Predictor(folder)(TEXT))] for folder in folders]
    for other in others:
        assert [one.word for one in other] == [one.word for one in words]
        np.testing.assert_allclose([one.probability for one in other], [one.probability for one in words], atol=1e-5)
    pruned = tmp_path / "pruned"
    run_here("edit_checkpoint", **of_run(run), prune=True, input_file=corpus_file, output_dir=pruned)
    assert len(Predictor(converted(pruned, tmp_path / "small", generator=True))(TEXT)) == 2
    wider = {**flags, "generator_size": 1, "init_checkpoint": run, "output_dir": tmp_path / "wider"}
    assert_refused("run_pretraining", wider, "generator/encoder/layer_*/", "; use generator_size=0.25, which belongs")
    models = map(ReplacedTokenModel.from_checkpoint, (run, converted(run, tmp_path / "scores")))
    np.testing.assert_allclose(*(model(np.array([[2, 7, 30, 500, 3]])) for model in models), atol=1e-6)


@pytest.mark.endurance
def test_a_resumed_run_with_new_masks_and_batches_of_tokens_equals_an_uninterrupted_one(
    flags, unmasked_records_file, vocab_file, tmp_path
):
    dynamic = {name: value for name, value in flags.items() if name != "train_batch_size"}
    dynamic |= {"input_file": unmasked_records_file, "dynamic_masking": True, "vocab_file": vocab_file}
    dynamic |= {"train_batch_tokens": 1024, "lr_schedule": "constant", "save_checkpoints_steps": 1}
    for folder, steps in (("whole", 20), ("resumed", 9), ("resumed", 20)):
        more = {"num_train_steps": steps, "keep_checkpoint_max": 0, "output_dir": tmp_path / folder}
        run_here("run_pretraining", **dynamic, **more)
    assert_same_arrays(f"{tmp_path}/whole/model.ckpt-20", f"{tmp_path}/resumed/model.ckpt-20")
    counts = [CheckpointReader(f"{tmp_path}/whole/model.ckpt-{step}").read("num_examples") for step in range(21)]
    sizes = np.diff(counts)
    assert sizes.min() < sizes.max() and sizes.max() >= 16  # short records come in larger batches
    assert sizes.sum() > 2 * UNMASKED_RECORDS


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"generator_size": 0.8}, ["--generator_size=0.8 of ", "hidden_size 13 is not", "a multiple of 1/4"]),
        ({"bert_config_file": OF_BERT}, ["needs an ELECTRA", "describes a BERT; give a file with"]),
        ({"objective": "masked_lm", "generator_size": 0.5}, ["--generator_size needs --objective=replaced_tokens"]),
        (
            {"do_export": True, "export_dir": "absent", "export_parallelism": 2, "num_train_steps": 1},
            ["--export_parallelism=2 does not divide num_attention_heads=1 of the exported model"],
        ),
        ({"teacher": "elsewhere"}, ["--teacher cannot be used with --objective=replaced_tokens"]),
    ],
)
def test_flags_that_do_not_go_together(flags, changes, parts, tmp_path):
    assert_refused("run_pretraining", {**flags, "output_dir": tmp_path / "out", **changes}, *parts)


def test_only_a_generator_is_converted_as_one(tmp_path, files_of_model, model_dir):
    given = {"to_hf": True, "generator": True, "output_dir": tmp_path / "hf", **files_of_model}
    assert_refused("convert_hf_checkpoint", given, "has no generator of an ELECTRA; leave out --generator")


@pytest.mark.endurance
def test_the_discriminator_is_converted_and_fine_tuned(run, tmp_path, sst2):
    run_here("convert_hf_checkpoint", **of_run(run), to_hf=True, output_dir=tmp_path / "hf")
    ids = np.array([[2, 7, 30, 500, 3]])
    scores = [np.asarray(ReplacedTokenModel.from_checkpoint(folder)(ids)) for folder in (run, tmp_path / "hf")]
    np.testing.assert_allclose(*scores, atol=1e-6)
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["architectures"] == ["ElectraForPreTraining"]
    tuned = {**sst2, **of_run(run), "learning_rate": 1e-9, "do_train": True}
    run_here("run_classifier", **tuned, output_dir=tmp_path / "tuned")
    vectors = [BertEncoder.from_checkpoint(str(folder))(ids).sequence_output for folder in (run, tmp_path / "tuned")]
    np.testing.assert_allclose(*vectors, atol=1e-4)
