"""Settings, model files, labels and scores that a run keeps in its output folder."""

import json
import os
import types

import numpy as np
import pytest

from official_bert.config.bert_config import BertConfig
from official_bert.support.errors import UserError
from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.tokenization import Vocabulary
from official_bert.training import run_folder
from official_bert.training.monitoring import write_results

CONFIG = ClassifierConfig(
    data_dir="d", bert_config_file="b", task_name="mrpc", vocab_file="v", output_dir="o", do_eval=True
)
VOCABULARY = Vocabulary({"[PAD]": 0, "a": 1, "b": 2})
SWAPPED = Vocabulary({"[PAD]": 0, "b": 1, "a": 2}, "swapped.txt")
TOKENIZER_JSON = json.dumps({"model": {"type": "WordPiece", "vocab": VOCABULARY.token_to_id}})
MODEL = {"vocab_size": 4, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.fixture
def model_files(tmp_path):
    """The files of a small model, outside the output folder."""
    (tmp_path / "given.json").write_text(json.dumps(MODEL))
    (tmp_path / "given.txt").write_bytes(b"[PAD]\na\r\nb")
    return {"bert_config_file": str(tmp_path / "given.json"), "vocab_file": str(tmp_path / "given.txt")}


def flags_of(model_files):
    return types.SimpleNamespace(**model_files, spm_model_file=None)


@pytest.fixture
def folder(tmp_path, model_files):
    """The output folder of a run."""
    run_folder.write_run_config(str(tmp_path / "out"), CONFIG, VOCABULARY)
    run_folder.write_model_files(str(tmp_path / "out"), BertConfig.from_dict(MODEL), flags_of(model_files))
    return str(tmp_path / "out")


def test_flags_are_read_as_they_were_written(tmp_path):
    assert run_folder.read_run_config(str(tmp_path)) is None
    run_folder.write_run_config(str(tmp_path), CONFIG, VOCABULARY)
    run = run_folder.read_run_config(str(tmp_path))
    assert ClassifierConfig(**run.flags) == CONFIG
    assert run.vocabulary == VOCABULARY.fingerprint
    run_folder.write_run_config(str(tmp_path), CONFIG)
    assert run_folder.read_run_config(str(tmp_path)).vocabulary is None
    for damaged in ("{}", '{"flags": 3}', '{"flags": {}, "vocabulary": 7}'):
        (tmp_path / "run_config.json").write_text(damaged)
        with pytest.raises(UserError, match="run_config.json was not written by a run"):
            run_folder.read_run_config(str(tmp_path))


def test_the_model_files_are_copied_byte_for_byte(folder, model_files):
    for name, given in (("bert_config.json", "bert_config_file"), ("vocab.txt", "vocab_file")):
        copy = os.path.join(folder, name)
        assert open(copy, "rb").read() == open(model_files[given], "rb").read()
        model_files[given] = copy
    times = {name: os.stat(path).st_mtime_ns for name, path in model_files.items()}
    # A run that uses the copies does not modify them.
    run_folder.write_model_files(folder, BertConfig.from_dict(MODEL), flags_of(model_files))
    assert {name: os.stat(path).st_mtime_ns for name, path in model_files.items()} == times


def test_the_files_of_hugging_face_are_copied_as_those_of_bert(tmp_path):
    sources = {"bert_config_file": str(tmp_path / "config.json"), "vocab_file": str(tmp_path / "tokenizer.json")}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", **MODEL, "hidden_act": "gelu"}))
    (tmp_path / "tokenizer.json").write_text(TOKENIZER_JSON)
    config = BertConfig.from_json_file(sources["bert_config_file"])
    (tmp_path / "out").mkdir()
    run_folder.write_model_files(str(tmp_path / "out"), config, flags_of(sources))
    assert (tmp_path / "out" / "vocab.txt").read_bytes() == b"[PAD]\na\nb\n"
    assert json.loads((tmp_path / "out" / "bert_config.json").read_text())["hidden_act"] == "gelu_erf"
    assert BertConfig.from_json_file(str(tmp_path / "out" / "bert_config.json")) == config


def test_a_foreign_file_under_the_name_of_a_copy_is_not_overwritten(tmp_path, model_files):
    run_folder.check_model_files_replaceable(str(tmp_path / "absent"), flags_of(model_files))
    (tmp_path / "vocab.txt").write_bytes(b"[PAD]\na\r\nb")
    run_folder.check_model_files_replaceable(str(tmp_path), flags_of(model_files))  # the same content
    (tmp_path / "vocab.txt").write_text("precious")
    with pytest.raises(UserError, match=r"vocab.txt differs from .*given.txt, which the run would copy"):
        run_folder.check_model_files_replaceable(str(tmp_path), flags_of(model_files))
    run_folder.write_run_config(str(tmp_path), CONFIG)  # files of an earlier run may be replaced
    run_folder.check_model_files_replaceable(str(tmp_path), flags_of(model_files))


def test_another_vocabulary_of_the_same_length_is_refused(folder, tmp_path):
    config = BertConfig.from_dict(MODEL)
    run_folder.check_same_model(folder, config, VOCABULARY)
    run_folder.check_same_model(folder, config, None)
    with pytest.raises(UserError, match="swapped.txt is not the vocabulary that the checkpoints in .* use .*vocab.txt"):
        run_folder.check_same_model(folder, config, SWAPPED)
    run_folder.write_run_config(str(tmp_path / "old"), CONFIG)  # like earlier versions
    run_folder.check_same_model(str(tmp_path / "old"), config, SWAPPED)


def test_a_folder_says_which_vocabulary_it_has_by_any_of_its_files(folder, tmp_path):
    recorded = os.path.join(folder, "run_config.json")

    def answers():
        return [run_folder.matches_vocabulary(folder, given) for given in (VOCABULARY, SWAPPED)]

    assert answers() == [True, False]
    os.remove(recorded)  # as in a released folder
    assert answers() == [True, False]
    os.remove(os.path.join(folder, "vocab.txt"))
    assert answers() == [None, None]
    run_folder.write_run_config(folder, CONFIG, VOCABULARY)  # only the hash
    assert answers() == [True, False]
    os.remove(recorded)
    (tmp_path / "out" / "tokenizer.json").write_text(TOKENIZER_JSON)
    assert answers() == [True, False]
    (tmp_path / "vocab.txt").write_text("[PAD]\n[unused1]\nthe\n")  # words may take the places of unused tokens
    assert run_folder.matches_vocabulary(str(tmp_path), Vocabulary({"[PAD]": 0, "harbour": 1, "the": 2, "quay": 3}))
    assert not run_folder.matches_vocabulary(str(tmp_path), Vocabulary({"[PAD]": 0, "harbour": 1}))


def test_another_architecture_is_refused_and_another_dropout_warned_of(folder, caplog):
    whole = BertConfig.from_dict(MODEL).to_dict()
    for changes, message in (
        ({"hidden_act": "relu"}, "^hidden_act is 'relu', but the checkpoints in .* trained with hidden_act 'gelu'"),
        ({"hidden_size": 16, "intermediate_size": 24}, r"^hidden_size is 16, intermediate_size is 24, but .* \d+"),
        ({"num_hidden_groups": 1, "embedding_size": 8}, "^family is 'albert', .* checkpoints in .* 'bert', emb"),
    ):
        with pytest.raises(UserError, match=message):
            run_folder.check_same_model(folder, BertConfig.from_dict({**whole, **changes}), VOCABULARY)
    run_folder.check_same_model(folder, BertConfig.from_dict({**MODEL, "hidden_dropout_prob": 0.0}), VOCABULARY)
    assert "hidden_dropout_prob is 0.0, but the checkpoints in" in caplog.text


def test_other_labels_than_those_of_the_checkpoints_are_refused(tmp_path):
    (tmp_path / run_folder.LABELS_FILE).write_text('["O", 1]')
    with pytest.raises(UserError, match="labels.json is damaged"):
        run_folder.read_labels(str(tmp_path))
    (tmp_path / run_folder.LABELS_FILE).unlink()
    run_folder.check_same_labels(str(tmp_path), ["O", "B-PER"])  # the labels are unknown
    run_folder.write_labels(str(tmp_path), ["O", "B-PER"])
    run_folder.check_same_labels(str(tmp_path), ("O", "B-PER"))
    for other in (["B-PER", "O"], ["O"]):
        with pytest.raises(UserError, match="the tags are .* checkpoints in .* were trained with 'O', 'B-PER'"):
            run_folder.check_same_labels(str(tmp_path), other, noun="tags")


def test_weights_that_are_not_trained_further_keep_their_labels(tmp_path):
    output_dir, init_checkpoint = str(tmp_path / "out"), str(tmp_path / "other" / "model.ckpt-3")
    assert run_folder.read_trained_labels(output_dir, None) is None
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"id2label": {"1": "b", "0": "a"}}')  # from Hugging Face
    assert run_folder.read_trained_labels(output_dir, init_checkpoint) == ["a", "b"]
    run_folder.check_label_order(init_checkpoint, ["a", "b"])
    run_folder.check_label_order(init_checkpoint, ["yes", "no"])  # either other names or other labels
    with pytest.raises(UserError, match=r"the labels are 'b', 'a', but .* the order 'a', 'b'; give them in that order"):
        run_folder.check_label_order(init_checkpoint, ["b", "a"])
    (tmp_path / "out").mkdir()
    run_folder.write_labels(output_dir, ["c"])
    assert run_folder.read_trained_labels(output_dir, init_checkpoint) == ["c"]


def test_results_are_read_as_they_were_written(tmp_path):
    results, path = {"loss": np.float32(0.25), "global_step": 12, "eval_accuracy": 1e-7}, tmp_path / "eval_results.txt"
    write_results(str(path), results)
    assert path.read_text() == "eval_accuracy = 1e-07\nglobal_step = 12\nloss = 0.25\n"
    assert run_folder.read_results(str(path)) == results
    for line in ("eval_accuracy 0.5", "eval_accuracy = high", ""):
        path.write_text(f"loss = 0.5\n{line}\n")
        with pytest.raises(UserError, match="eval_results.txt, line 2:"):
            run_folder.read_results(str(path))
