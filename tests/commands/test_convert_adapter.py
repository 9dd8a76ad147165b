"""Adapters of `convert_hf_checkpoint` and runs with `--lora_rank`, from training to the merged model."""

import json
import shutil

import numpy as np
import pytest

from official_bert.inference.predictor import Predictor
from tests.commands.conftest import arrays_of, assert_same_arrays
from tests.conftest import assert_refused, prints_error, run_here

TEXTS = ["the empty town", "the bright harbour"]


def probabilities(answers):
    return [[answer.probabilities[label] for label in ("0", "1")] for answer in answers]


@pytest.fixture(scope="module")
def settings(one_layer_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    rows = "".join(f"the {word} town\t{number % 2}\n" for number, word in enumerate(["empty", "bright"] * 8))
    (folder / "train.tsv").write_text("sentence\tlabel\n" + rows)
    (folder / "test.tsv").write_text(
        "index\tsentence\n" + "".join(f"{row}\t{text}\n" for row, text in enumerate(TEXTS))
    )
    return {
        **one_layer_model, "task_name": "sst-2", "data_dir": str(folder), "max_seq_length": 16, "train_batch_size": 8,
        "learning_rate": 1e-2, "lr_schedule": "constant", "warmup_proportion": 0.0, "lora_rank": 2, "lora_alpha": 6.0,
        "lora_layers": "query,dense",
    }  # fmt: skip


@pytest.fixture(scope="module")
def trained(settings, tmp_path_factory):
    """The output folder of a run of four steps, with its predictions."""
    folder = tmp_path_factory.mktemp("run") / "out"
    flags = {**settings, "output_dir": str(folder), "num_train_epochs": 2.0}
    run_here("run_classifier", **flags, do_train=True, do_predict=True)
    return folder


@pytest.mark.endurance
def test_only_the_updates_and_the_head_are_trained_and_runs_resume(settings, trained, tmp_path):
    whole, released = arrays_of(f"{trained}/model.ckpt-4"), arrays_of(settings["init_checkpoint"])
    encoder = [name for name in whole.keys() & released.keys() if name.startswith("bert/") and "/pooler/" not in name]
    assert_same_arrays(whole, released, encoder)
    slots = {name.removesuffix("/adam_m") for name in whole if name.endswith("/adam_m")}
    updates = {name for name in whole if "/lora_kernel_" in name and not name.endswith(("/adam_m", "/adam_v"))}
    assert len(updates) == 4 * 2
    pooler = {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}
    assert slots == {*updates, *pooler, "output_weights", "output_bias"}
    assert all(np.any(whole[name]) for name in updates)

    flags = {**settings, "output_dir": str(tmp_path / "out"), "do_train": True}
    run_here("run_classifier", **flags, num_train_epochs=1.0)
    flags["num_train_epochs"] = 2.0
    with prints_error("--lora_rank=3, but .*model.ckpt-2 was trained with --lora_rank=2, and"):
        run_here("run_classifier", **{**flags, "lora_rank": 3})
    run_here("run_classifier", **flags)
    assert_same_arrays(f"{tmp_path}/out/model.ckpt-4", whole)


@pytest.mark.slow
def test_the_model_is_merged_for_prediction_and_for_its_adapter(settings, trained, tmp_path):
    expected = np.loadtxt(trained / "test_results.tsv")
    found = Predictor(trained)(TEXTS)
    np.testing.assert_allclose(probabilities(found), expected, atol=1e-5)
    without_updates = {name: value for name, value in settings.items() if not name.startswith("lora_")}
    run_here("run_classifier", **without_updates, output_dir=str(trained), do_predict=True)
    np.testing.assert_allclose(np.loadtxt(trained / "test_results.tsv"), expected, atol=1e-5)

    flags = {name: settings[name] for name in ("bert_config_file", "vocab_file")}
    adapter, merged = str(tmp_path / "adapter"), tmp_path / "merged"
    run_here("convert_hf_checkpoint", **flags, init_checkpoint=str(trained), output_dir=adapter)
    values = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (values["r"], values["lora_alpha"], values["modules_to_save"]) == (2, 6.0, ["classifier", "pooler"])
    assert values["base_model_name_or_path"] == settings["init_checkpoint"]
    given = {**flags, "init_checkpoint": settings["init_checkpoint"], "adapter_dir": adapter}
    run_here("convert_hf_checkpoint", **given, output_dir=str(merged))
    shutil.copy(trained / "labels.json", merged)
    again = Predictor(merged, do_lower_case=True)(TEXTS)
    np.testing.assert_allclose(probabilities(again), expected, atol=1e-5)
    message = "adapter_config.json exists already; give another folder"
    config = {**flags, "init_checkpoint": str(trained), "output_dir": adapter}
    assert_refused("convert_hf_checkpoint", config, message)


def test_mistakes_are_one_message(settings, files_of_model, tmp_path):
    flags = {**settings, "output_dir": str(tmp_path), "do_train": True}
    for changes, message in (
        ({"lora_layers": "query,pooler"}, "--lora_layers: 'pooler' is unknown; choose from query, key, value, dense"),
        ({"lora_rank": 0}, "--lora_alpha needs --lora_rank"),
        ({"train_only": "bias"}, "--train_only cannot be used with --lora_rank"),
        ({"init_checkpoint": None}, "--lora_rank needs --init_checkpoint"),
    ):
        assert_refused("run_classifier", {**flags, **changes}, message)
    flags = {name: files_of_model[name] for name in ("init_checkpoint", "bert_config_file")}
    flags["output_dir"] = tmp_path / "new"
    assert_refused("convert_hf_checkpoint", {**flags, "adapter_dir": tmp_path}, "adapter_config.json")
    assert not (tmp_path / "new").exists()
