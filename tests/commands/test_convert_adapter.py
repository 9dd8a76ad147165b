"""Adapters of `convert_hf_checkpoint` and runs with `--lora_rank`, from training to the merged model."""

import json
import shutil

import numpy as np
import pytest

from official_bert.inference.predictor import Predictor
from tests.commands.conftest import arrays_of, assert_same_arrays, table
from tests.conftest import assert_refused, prints_error, run_here


def probabilities(answers):
    return [[answer.probabilities[label] for label in ("0", "1")] for answer in answers]


@pytest.fixture(scope="module")
def settings(sst2):
    constant = {"learning_rate": 1e-2, "lr_schedule": "constant", "warmup_proportion": 0.0}
    return {**sst2, **constant, "lora_rank": 2, "lora_alpha": 6.0, "lora_layers": "query,dense"}


@pytest.fixture(scope="module")
def trained(settings, tmp_path_factory):
    """The output folder of a run, with its predictions."""
    folder = tmp_path_factory.mktemp("run") / "out"
    run_here("run_classifier", **settings, output_dir=str(folder), do_train=True, do_predict=True)
    return folder


@pytest.mark.slow
def test_only_the_updates_and_the_head_are_trained(settings, trained):
    whole, released = arrays_of(f"{trained}/model.ckpt-6"), arrays_of(settings["init_checkpoint"])
    encoder = [name for name in whole.keys() & released.keys() if name.startswith("bert/") and "/pooler/" not in name]
    assert_same_arrays(whole, released, encoder)
    slots = {name.removesuffix("/adam_m") for name in whole if name.endswith("/adam_m")}
    updates = {name for name in whole if "/lora_kernel_" in name and not name.endswith(("/adam_m", "/adam_v"))}
    assert len(updates) == 4 * 2 and all(np.any(whole[name]) for name in updates)
    pooler = {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}
    assert slots == {*updates, *pooler, "output_weights", "output_bias"}
    with prints_error("--lora_rank=3, but .*model.ckpt-6 was trained with --lora_rank=2, and"):
        run_here("run_classifier", **{**settings, "lora_rank": 3, "output_dir": str(trained)}, do_train=True)


@pytest.mark.slow
def test_the_model_is_merged_for_prediction_and_for_its_adapter(settings, trained, tmp_path):
    texts = [row[1] for row in table(settings["data_dir"], "test.tsv")[1:]]
    expected = np.loadtxt(trained / "test_results.tsv")
    np.testing.assert_allclose(probabilities(Predictor(trained)(texts)), expected, atol=1e-5)
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
    answers = Predictor(merged, do_lower_case=True)(texts)
    np.testing.assert_allclose(probabilities(answers), expected, atol=1e-5)
    config = {**flags, "init_checkpoint": str(trained), "output_dir": adapter}
    assert_refused("convert_hf_checkpoint", config, "adapter_config.json exists already; give another folder")


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
