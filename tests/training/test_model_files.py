"""The files of a model, as every script that builds one reads them."""

import dataclasses
import json

import pytest

from official_bert.commands import run_classifier, run_multiple_choice, run_ner, run_pretraining, run_squad
from official_bert.commands.convert_hf_checkpoint import HfConversionConfig
from official_bert.commands.fill_mask import FillMaskConfig
from official_bert.support.errors import UserError
from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.tasks.multiple_choice.options import MultipleChoiceConfig
from official_bert.tasks.pretraining.options import PretrainingConfig
from official_bert.tasks.question_answering.options import SquadConfig
from official_bert.tasks.sentence_encoder.options import SentenceEncoderConfig
from official_bert.tasks.tagging.options import TaggingConfig
from official_bert.training.model_files import complete_model_flags, read_model_files
from official_bert.training.run_folder import write_run_config
from tests.conftest import run_config


def test_no_script_begins_to_build_a_model_that_the_machine_cannot_hold(files_of_model, tmp_path):
    config = json.loads(open(files_of_model["bert_config_file"]).read())
    large = tmp_path / "bert_config.json"
    large.write_text(json.dumps(config | {"intermediate_size": 2**31 - 1, "num_hidden_layers": 10_000}))
    files = {**files_of_model, "bert_config_file": str(large)}
    run_files = {**files, "output_dir": str(tmp_path / "out"), "do_train": True}
    message = "bert_config.json: intermediate_size is 2147483647; .* parameters and needs .* GB to be trained, but this"
    for command, config_of_run in (
        (run_pretraining, PretrainingConfig(**{**run_files, "vocab_file": None}, input_file="absent")),
        (run_classifier, ClassifierConfig(**run_files, task_name="mrpc", data_dir="absent")),
        (run_ner, TaggingConfig(**run_files, data_dir="absent")),
    ):
        with pytest.raises(UserError, match=message):
            run_config(command, config_of_run)
    assert not (tmp_path / "out").exists()


def test_a_model_of_one_segment_refuses_pairs_before_any_file_of_data_is_read(files_of_model, tmp_path):
    config = json.loads(open(files_of_model["bert_config_file"]).read())
    (tmp_path / "bert_config.json").write_text(json.dumps(config | {"type_vocab_size": 1}))
    files = {"bert_config_file": str(tmp_path / "bert_config.json"), "vocab_file": files_of_model["vocab_file"]}
    runs = {**files, "output_dir": str(tmp_path / "out"), "do_train": True, "max_seq_length": 16}
    lengths = {"max_query_length": 4, "doc_stride": 2}
    for command, config_of_run in (
        (run_classifier, ClassifierConfig(**runs, task_name="mrpc", data_dir="absent")),
        (run_multiple_choice, MultipleChoiceConfig(**runs, task_name="race", data_dir="absent")),
        (run_squad, SquadConfig(**runs, **lengths, train_file=files["vocab_file"])),
    ):
        with pytest.raises(UserError, match="the model has type_vocab_size=1, so it cannot read pairs of texts"):
            run_config(command, config_of_run)
    _, tokenizer = read_model_files(SquadConfig(**runs, **lengths, train_file="absent"))
    assert tokenizer("the town")["input_ids"].shape == (1, 4)
    with pytest.raises(UserError, match="type_vocab_size=1"):
        tokenizer("the town", "the harbour")


CASED, UNCASED = "[UNK]\n[CLS]\n[SEP]\n[MASK]\nThe\nTown\n", "[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ntown\n"


def folder_of(path, **contents):
    """Create a folder with the name of a checkpoint and other files."""
    path.mkdir(parents=True)
    (path / "bert_model.ckpt.index").touch()
    for name, content in contents.items():
        content = content if isinstance(content, str) else json.dumps(content)
        (path / name.replace("__", ".")).write_text(content)
    return str(path)


def complete(config_class, **given):
    """Return the flags that the folder adds or changes."""
    defaults = {field.name: field.default for field in dataclasses.fields(config_class)}
    values = complete_model_flags(config_class, defaults | given, list(given))
    return {name: value for name, value in values.items() if value != (defaults | given)[name]}


def test_a_folder_supplies_the_flags_that_are_not_given(tmp_path):
    cased = folder_of(tmp_path / "cased", bert_config__json={}, vocab__txt=CASED)
    found = {"bert_config_file": f"{cased}/bert_config.json", "vocab_file": f"{cased}/vocab.txt"}
    for path in (cased, f"{cased}/bert_model.ckpt", f"{cased}/bert_model.ckpt.index"):
        assert complete(FillMaskConfig, init_checkpoint=path) == found | {"do_lower_case": False}
    assert complete(SquadConfig, init_checkpoint=cased, do_lower_case=True) == found
    # With a given vocabulary, old command lines keep their meaning.
    assert complete(SquadConfig, init_checkpoint=cased, **found) == {}
    config_alone = {"bert_config_file": found["bert_config_file"]}
    assert complete(SquadConfig, init_checkpoint=cased, vocab_file="v") == config_alone
    best = folder_of(tmp_path / "cased" / "best")
    assert complete(FillMaskConfig, init_checkpoint=best) == found | {"do_lower_case": False}
    # Configs that need no vocabulary, or consult their records first.
    assert complete(PretrainingConfig, init_checkpoint=cased) == config_alone
    assert complete(HfConversionConfig, init_checkpoint=cased) == {}
    assert complete(HfConversionConfig, init_checkpoint=cased, to_hf=True) == found | {"do_lower_case": False}
    with pytest.raises(UserError, match="init_checkpoint bert-base-uncased: no such .* as hf://owner/name"):
        complete(FillMaskConfig, init_checkpoint="bert-base-uncased")


def test_each_kind_of_folder_says_it_in_its_own_files(tmp_path):
    run = {"task": "classification", "flags": {"do_lower_case": True, "strip_accents": False, "basic_tokenize": True}}
    released = folder_of(tmp_path / "albert", albert_config__json={}, spiece__model="a")
    with pytest.raises(UserError, match=r"spiece\.model is not a SentencePiece model"):
        complete(FillMaskConfig, init_checkpoint=released)
    assert complete(FillMaskConfig, init_checkpoint=released, vocab_file="v", do_lower_case=True) == {
        "bert_config_file": f"{released}/albert_config.json"
    }
    of_run = folder_of(tmp_path / "run", bert_config__json={}, vocab__txt=UNCASED, run_config__json=run)
    given = {"init_checkpoint": of_run, "bert_config_file": "b"}
    accents = {"strip_accents": False}
    assert complete(FillMaskConfig, **given) == {"vocab_file": f"{of_run}/vocab.txt", **accents}
    assert complete(FillMaskConfig, **given, vocab_file="v") == accents
    tokenizer = {"model": {"type": "WordPiece", "vocab": {t: n for n, t in enumerate(UNCASED.split())}}}
    files = {"config__json": {}, "model__safetensors": "", "tokenizer_config__json": {"do_lower_case": False}}
    hf = folder_of(tmp_path / "hf", **files, tokenizer__json=tokenizer)
    assert complete(FillMaskConfig, init_checkpoint=f"{hf}/model.safetensors") == {
        "bert_config_file": f"{hf}/config.json",
        "vocab_file": f"{hf}/tokenizer.json",
        "do_lower_case": False,
    }


_OF_RUNS = {
    ClassifierConfig: {
        "task_name": "Custom", "data_dir": "d", "text_a_column": "a", "label_column": "l", "labels": "x,y",
    },
    TaggingConfig: {"data_dir": "d", "head": "crf", "word_column": 1, "constrained_decoding": True},
    SquadConfig: {"train_file": "t", "version_2_with_negative": True, "doc_stride": 10, "max_query_length": 9},
    MultipleChoiceConfig: {"task_name": "swag", "data_dir": "d", "primary_metric": "accuracy"},
    SentenceEncoderConfig: {"task_name": "qnli", "data_dir": "d", "query_prefix": "q: ", "pooling": "cls"},
    PretrainingConfig: {"input_file": "r", "dynamic_masking": True, "masked_lm_prob": 0.2, "use_next_sentence": False},
}  # fmt: skip


@pytest.mark.parametrize("config_class", _OF_RUNS)
def test_a_command_without_training_has_the_flags_of_its_run(config_class, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    size = "eval_batch_size" if config_class is PretrainingConfig else "predict_batch_size"
    of_run = _OF_RUNS[config_class] | {"max_seq_length": 48, "do_lower_case": False, size: 3}
    files = {"bert_config_file": "gone.json", "vocab_file": "vocab.txt", "init_checkpoint": "gone"}
    of_training = {"output_dir": "run", "do_train": True, "learning_rate": 1e-3, "mixed_precision": "bfloat16"}
    train_file = {} if {"swag", "qnli", "r"}.intersection(of_run.values()) else {"train_file": "t.tsv"}
    config = config_class(**of_run | files | of_training | train_file)
    folder_of(tmp_path / "run", bert_config__json={}, vocab__txt=CASED)
    write_run_config("run", config)
    of_folder = {"bert_config_file": "run/bert_config.json", "vocab_file": "run/vocab.txt"}
    expected = {**of_run, **of_folder, **train_file}
    exported = {"output_dir": "run", "do_export": True, "export_dir": "e"}
    assert complete(config_class, **exported) == expected
    config_class(**exported, **expected)
    # Without a run in the output folder, of the weights.
    elsewhere = {**exported, "output_dir": "new", "init_checkpoint": "run"}
    assert complete(config_class, **elsewhere) == expected
    # Given flags are kept, unless they contradict the weights.
    given = {"max_seq_length": 64, "vocab_file": "given.txt"}
    assert complete(config_class, **exported, **given) == {k: v for k, v in expected.items() if k not in given}
    with pytest.raises(UserError, match="do_lower_case=True, but the checkpoints in run were trained with do_lower"):
        complete(config_class, **exported, do_lower_case=True)
    assert complete(config_class, output_dir="run", do_train=True) == {}
    if config_class is PretrainingConfig:  # the records of another file may have masks
        of_file = ("input_file", "dynamic_masking", "masked_lm_prob")
        kept = {name: value for name, value in expected.items() if name not in of_file}
        assert complete(config_class, **exported, input_file="other") == kept
    other = next(other for other in _OF_RUNS if other is not config_class)
    with pytest.raises(UserError, match=f"output_dir=run has a run of the task {config.task}, not {other.task}"):
        complete(other, **exported)


def test_a_given_file_is_found_without_the_data_folder_of_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder_of(tmp_path / "run", bert_config__json={}, vocab__txt=CASED)
    config = ClassifierConfig(
        task_name="custom", text_a_column="a", label_column="b", data_dir="d", train_file="t.tsv", output_dir="run",
        do_train=True, bert_config_file="b", vocab_file="v",
    )  # fmt: skip
    write_run_config("run", config)
    (tmp_path / "here.tsv").touch()
    predicting = {"output_dir": "run", "do_predict": True}
    assert complete(ClassifierConfig, **predicting, predict_file="here.tsv")["predict_file"] == f"{tmp_path}/here.tsv"
    for given in ({"predict_file": "there.tsv"}, {"predict_file": "here.tsv", "data_dir": "d"}):
        assert "predict_file" not in complete(ClassifierConfig, **predicting, **given)
    # The columns of the run are not those of another data set.
    other = complete(ClassifierConfig, **predicting, task_name="mrpc", data_dir="MRPC")
    assert not {"text_a_column", "label_column", "train_file"} & other.keys()


def test_another_casing_than_that_of_the_checkpoint_is_refused(files_of_model, tmp_path):
    run = {"task": "classification", "flags": {"do_lower_case": True}}
    folder = folder_of(tmp_path / "run", run_config__json=run)
    flags = {**files_of_model, "init_checkpoint": folder, "text": "[MASK]"}
    read_model_files(FillMaskConfig(**flags))
    message = rf"init_checkpoint={folder} was trained with true according to .*run_config\.json"
    with pytest.raises(UserError, match=message):
        read_model_files(FillMaskConfig(**flags, do_lower_case=False))
    read_model_files(FillMaskConfig(**flags, do_lower_case=False, basic_tokenize=False))  # lowercased words
    # A run without the flag does not restrict it.
    (tmp_path / "run" / "run_config.json").write_text(json.dumps(run | {"task": "pretraining"}))
    read_model_files(FillMaskConfig(**flags, do_lower_case=False))
