"""Errors in files that scripts report immediately, before TensorFlow is imported."""

import dataclasses
import os
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from official_bert.commands import all_commands
from tests.conftest import GOLDEN, run_program

# Runs in a process where TensorFlow cannot be imported.
_PROGRAM = """
import sys
sys.modules["tensorflow"] = None
from official_bert.commands import load_command
from official_bert.options.option import check_outputs
from official_bert.support.errors import UserError
for name, flags, part in {cases!r}:
    script = load_command(name)
    try:
        config = script.config_class(**flags)
        check_outputs(config)
        (script.prepare or script.check)(config)
        message = "nothing"
    except UserError as error:
        message = str(error)
    if part.replace("--", "") not in message.replace("--", ""):
        sys.exit(f"{{name}} {{flags}}: {{message}}, not {{part}}")
"""


def _outputs(command):
    fields = dataclasses.fields(command.config_class)
    return [field.name for field in fields if field.metadata["is_output"]]


@pytest.fixture
def cases(files_of_model, corpus_file, vocab_file, tmp_path):
    """Scripts with flags and a part of the expected message."""
    (tmp_path / "short.txt").write_text("[PAD]\n[UNK]\n[CLS]\n")
    (tmp_path / "sst-2").mkdir()
    (tmp_path / "questions.json").write_text("{}")
    table = str(tmp_path / "table.parquet")
    pq.write_table(pa.table({"body": ["a"]}), table)
    custom = {"task_name": "custom", "data_dir": str(tmp_path), "train_file": "table.parquet"}
    custom |= {"text_a_column": "body", "label_column": "label"}
    (tmp_path / "train.csv").write_text("body;label;c;d\na;x;1;2\nb;y;3;4\n")
    (tmp_path / "dev.csv").write_text("body;label\na;x\nb;z\n")
    semicolons = {**custom, "train_file": "train.csv", "delimiter": ";"}
    choices = {"task_name": "custom", "data_dir": str(tmp_path), "train_file": "train.csv", "delimiter": ";"}
    choices |= {"context_column": "body", "choice_columns": "c,d", "label_column": "label"}
    absent, short = str(tmp_path / "absent"), {"max_seq_length": 64, "max_query_length": 16, "doc_stride": 16}
    folders = {"output_dir": str(tmp_path / "out"), "data_dir": str(tmp_path / "sst-2")}
    length = {"max_seq_length": 64}
    texts = {"input_file": corpus_file, "output_file": absent, **length}
    base = {
        "create_pretraining_data": {"input_file": corpus_file, "output_file": absent, "vocab_file": vocab_file},
        "beam_pretraining_data": {"input_file": corpus_file, "output_file": absent, "vocab_file": vocab_file},
        "beam_predict": {"model_dir": str(tmp_path), "input_file": corpus_file, "output_file": absent},
        "serve": {"export_dir": str(tmp_path)},
        "export": {"model_dir": str(tmp_path), "export_dir": absent},
        "run_pretraining": {"bert_config_file": files_of_model["bert_config_file"], "input_file": corpus_file},
        "run_classifier": {**files_of_model, **folders, "task_name": "sst-2", "max_seq_length": 16},
        "run_ner": {**files_of_model, **folders, "max_seq_length": 16},
        "run_squad": {**files_of_model, **short, "predict_file": str(tmp_path / "questions.json")},
        "run_sentence_encoder": {**files_of_model, **folders, "text_columns": "a,b", "max_seq_length": 16},
        "run_multiple_choice": {**files_of_model, **folders, "task_name": "race", "max_seq_length": 16},
        "extract_features": {**files_of_model, **texts, "layers": "-1"},
        "sentence_similarity": {**files_of_model, "candidates_file": corpus_file, "query": "a", "max_seq_length": 64},
        "mine_hard_negatives": {**files_of_model, "pairs_file": corpus_file, "output_file": absent, **length},
        "score_sentences": {**files_of_model, **texts},
        "export_embeddings": {**files_of_model, "export_dir": absent, "max_seq_length": 64},
        "predict": {"model_dir": str(tmp_path), "input_file": corpus_file},
        "fill_mask": {**files_of_model, "text": "[MASK]"},
        "view_attention": {**files_of_model, "text": "a", "output_file": absent},
        "convert_hf_checkpoint": {"output_dir": absent},
        "edit_checkpoint": {**files_of_model, "output_dir": absent, "num_layers": 2},
        "split_sentences": {"output_file": absent, "input_file": corpus_file},
        "build_vocab": {"vocab_file": absent, "input_file": corpus_file},
    }
    for name in ("run_pretraining", "run_squad"):
        base[name]["output_dir"] = folders["output_dir"]
    base["run_pretraining"]["max_seq_length"] = 64
    # A released folder with a reordered vocabulary: it fits, but would give every text other ids.
    shutil.copytree(os.path.dirname(files_of_model["init_checkpoint"]), tmp_path / "released")
    shutil.copy(vocab_file, tmp_path / "released" / "vocab.txt")
    lines = open(vocab_file).read().splitlines(keepends=True)
    (tmp_path / "other.txt").write_text("".join([*lines[:5], *reversed(lines[5:])]))
    (tmp_path / "few.txt").write_text("".join(lines[:5]))
    mixed = {"init_checkpoint": str(tmp_path / "released/bert_model.ckpt"), "vocab_file": str(tmp_path / "other.txt")}
    few = {"vocab_file": str(tmp_path / "few.txt")}
    to_hf = {"to_hf": True, **files_of_model}
    export = {"do_export": True, "export_dir": absent}
    train, evaluate, predict = {"do_train": True}, {"do_eval": True}, {"do_predict": True}
    no_vocabulary = {"vocab_file": None, "init_checkpoint": str(GOLDEN / "families" / "bert" / "Model")}
    no_checkpoint, bare = {"init_checkpoint": absent}, {"init_checkpoint": None}
    averaged = {"init_checkpoint": f"{files_of_model['init_checkpoint']},{absent}"}
    cases = [
        ("create_pretraining_data", {"input_file": absent}, "no file matches"),
        ("create_pretraining_data", {"input_file": table}, "no column 'text'; the columns are 'body'"),
        ("create_pretraining_data", {"text_field": "body"}, "--text_field=body cannot be used with plain text"),
        ("beam_pretraining_data", {"input_file": absent}, "no file matches"),
        ("beam_predict", {"model_dir": absent}, "--model_dir: there is no folder"),
        ("serve", {"export_dir": absent}, "--export_dir: there is no folder"),
        ("beam_predict", {"input_file": absent}, "no file matches"),
        ("export", {"model_dir": absent}, "--model_dir: there is no folder"),
        ("run_pretraining", {**train, "input_file": absent}, "no file matches"),
        ("run_pretraining", {**train, "dynamic_masking": True, "vocab_file": absent}, "cannot read"),
        ("run_pretraining", {**train, **no_checkpoint}, "no such checkpoint"),
        ("run_pretraining", {**train, "teacher": absent}, f"teacher {absent}: no such checkpoint"),
        ("run_pretraining", {**train, "max_seq_length": 65}, "exceeds max_position_embeddings"),
        ("run_pretraining", evaluate, "no checkpoint in --output_dir"),
        ("run_classifier", {**train, **no_checkpoint}, "no such checkpoint"),
        ("run_classifier", {**train, "vocab_file": str(tmp_path / "short.txt")}, "lacks [SEP]"),
        ("run_classifier", {**train, "bert_config_file": absent}, "cannot read the model config"),
        ("run_classifier", {**train, **no_vocabulary}, "/bert/Model has no such file"),
        ("run_classifier", {**evaluate, **bare}, "no checkpoint in --output_dir"),
        ("run_classifier", train, "sst-2/train.tsv"),
        ("run_classifier", {**train, "data_dir": absent}, "there is no folder"),
        ("run_classifier", {**train, **custom}, "table.parquet: no column 'label'; the columns are 'body'"),
        ("run_classifier", {**train, **semicolons}, "nothing"),
        ("run_classifier", {**train, **semicolons, "delimiter": ","}, "are they separated by semicolons?"),
        ("run_classifier", {**train, **semicolons, "text_a_column": "Body"}, "no column 'Body'; the columns are"),
        ("run_classifier", {**train, **evaluate, **semicolons, "eval_file": "dev.csv"}, "line 3: label 'z' is not one"),
        ("run_ner", train, "nor klue-ner-v1.1_train.tsv; check the folder, or give --train_file"),
        ("run_squad", {**train, "train_file": absent}, "--train_file: there is no"),
        ("run_squad", {**train, "train_file": corpus_file, "doc_stride": 128}, "--doc_stride=128 must be from 1 to 59"),
        ("run_squad", {**predict, **bare}, "no checkpoint in --output_dir"),
        ("run_squad", predict, "questions.json has no data"),
        ("run_sentence_encoder", {**train, "train_file": "absent.tsv"}, "sst-2/absent.tsv: there is no file"),
        ("run_sentence_encoder", {**train, "train_file": str(tmp_path / "dev.csv")}, "no column 'a'; the columns are"),
        ("run_sentence_encoder", {**evaluate, "eval_file": "a.tsv", **bare}, "no checkpoint in --output_dir"),
        ("run_multiple_choice", train, "train.jsonl: there is no file"),
        ("run_multiple_choice", {**train, **choices, "label_column": "key"}, "no column 'key'; the columns are"),
        ("run_multiple_choice", {**train, **choices}, "line 2: the label 'x' is not one of the 2 choices"),
        ("extract_features", {"input_file": absent}, "--input_file: there is no"),
        ("extract_features", {"input_file": table, "text_column": "t"}, "no column 't'; the columns are 'body'"),
        ("extract_features", {"layers": "0,3"}, "--layers=0,3: there is no layer 3"),
        ("extract_features", {"input_file": "-"}, "nothing"),
        ("sentence_similarity", {"candidates_file": absent}, "--candidates_file: there is no"),
        ("sentence_similarity", {"query": None, "query_file": absent}, "--query_file: there is no"),
        ("sentence_similarity", {"layers": "0,3"}, "--layers=0,3: there is no layer 3"),
        ("sentence_similarity", {}, "nothing"),
        ("mine_hard_negatives", {"pairs_file": absent}, "--pairs_file: there is no"),
        ("mine_hard_negatives", {"output_file": f"{absent}/a.tsv"}, "does not exist"),
        ("mine_hard_negatives", {"layers": "0,3"}, "--layers=0,3: there is no layer 3"),
        ("score_sentences", {"input_file": absent}, "--input_file: there is no"),
        ("score_sentences", {}, "nothing"),
        ("export_embeddings", no_checkpoint, "no such checkpoint"),
        ("export_embeddings", {"export_parallelism": 3}, "--export_parallelism=3"),
        ("export_embeddings", {}, "nothing"),
        ("predict", {"context_file": absent}, "--context_file: there is no"),
        ("predict", {"input_file": "-"}, "nothing"),
        ("fill_mask", {"vocab_file": absent}, "cannot read"),
        ("fill_mask", {}, "nothing"),
        ("view_attention", no_checkpoint, "no such checkpoint"),
        ("view_attention", {"layer": 3, "head": 0}, "--layer=3: there is no layer 3 in a model of 3 layers"),
        ("convert_hf_checkpoint", {"hf_dir": absent}, "config.json"),
        ("edit_checkpoint", {"num_layers": None, "layers": "0,3"}, "--layers=0,3: there is no layer 3"),
        ("edit_checkpoint", no_checkpoint, f"--init_checkpoint {absent}: no such checkpoint"),
        ("edit_checkpoint", averaged, f"--init_checkpoint {absent}: no such checkpoint"),
        ("edit_checkpoint", {}, "nothing"),
        ("convert_hf_checkpoint", no_checkpoint, f"--init_checkpoint {absent}: no such checkpoint"),
        ("convert_hf_checkpoint", files_of_model, "nothing"),
        ("edit_checkpoint", {"max_position_embeddings": 64}, "has 64 already; give more"),
        ("split_sentences", {"input_file": absent}, "no file matches"),
        ("edit_checkpoint", {"input_file": absent, "prune": True}, "no file matches"),
        ("edit_checkpoint", {"bert_config_file": absent}, "cannot read the model config"),
        ("build_vocab", {"input_file": absent}, "no file matches"),
    ]
    (tmp_path / "run").mkdir()
    shutil.copytree(os.path.dirname(files_of_model["init_checkpoint"]), tmp_path / "run" / "best")
    (tmp_path / "run" / "run_config.json").write_text("{}")
    (tmp_path / "link.txt").symlink_to(corpus_file)
    os.link(table, tmp_path / "hard.parquet")
    (tmp_path / "list.txt").write_text(f"{table}\n")
    listed = {"input_file": f"{corpus_file},@{tmp_path}/list.txt"}
    best = {"init_checkpoint": str(tmp_path / "run" / "best" / "bert_model.ckpt")}
    outputs = {name: flag for name, command in all_commands().items() for flag in _outputs(command)}
    assert outputs.keys() >= {"predict", "build_vocab", "create_pretraining_data"}
    replaced = [
        ("predict", {"output_file": str(tmp_path / "run" / "run_config.json"), "model_dir": str(tmp_path / "run")}),
        ("extract_features", {"output_file": str(tmp_path / "run" / "run_config.json"), **best}),
        ("view_attention", {"output_file": f"{best['init_checkpoint']}.index", **best}),
        ("beam_predict", {"output_file": str(tmp_path / "link.txt"), **listed}),
        ("build_vocab", {"vocab_file": str(tmp_path / "hard.parquet"), **listed}),
        ("split_sentences", {"output_file": f"{tmp_path}/./few.txt", "input_file": f"{tmp_path}/f*.txt"}),
        ("create_pretraining_data", {"output_file": f"{absent},{tmp_path}/few.txt", "input_file": str(tmp_path)}),
        *((name, {flag: next(filter(os.path.isfile, base[name].values()))}) for name, flag in outputs.items()),
    ]
    cases += [(name, flags, "is also an input") for name, flags in replaced]
    old = {"output_file": str(tmp_path / "run" / "old.tsv"), "model_dir": str(tmp_path / "run")}
    (tmp_path / "run" / "old.tsv").write_text("earlier predictions")
    cases += [("predict", old, "nothing")]
    is_other = f"other.txt is not the vocabulary that --init_checkpoint={mixed['init_checkpoint']} was trained with"
    plain = "fill_mask extract_features sentence_similarity mine_hard_negatives score_sentences view_attention"
    plain += " edit_checkpoint"
    readers = {
        "run_classifier": train,
        "run_squad": {**train, "train_file": corpus_file},
        "run_ner": train,
        "run_pretraining": {**train, **export, "init_checkpoint": files_of_model["init_checkpoint"]},
        "convert_hf_checkpoint": to_hf,
        **{name: {} for name in plain.split()},
    }
    cases += [(name, {**flags, **mixed}, is_other) for name, flags in readers.items()]
    cases += [(name, {**flags, **few}, "few.txt has 5 wordpieces") for name, flags in readers.items()]
    passwd = {**to_hf, "vocab_file": "/etc/passwd"}
    cases += [("convert_hf_checkpoint", passwd, "/etc/passwd lacks [UNK], [CLS], [SEP]; is this a BERT vocabulary?")]
    return [(name, {**base[name], **changes}, part) for name, changes, part in cases]


def test_they_are_found_without_tensorflow(cases):
    run_program(_PROGRAM.format(cases=cases))
    commands = all_commands()  # commands that share a check are one case
    reading = {name: command.prepare or command.check for name, command in commands.items()}
    checked = {reading[name] for name, _, _ in cases}
    assert [name for name, function in reading.items() if function and function not in checked] == []
