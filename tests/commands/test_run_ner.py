"""`run_ner.py` on generated sentences: training, evaluation and prediction, all its own flags, and bad input."""

import itertools
import json
import os
import pathlib
import random
import shutil

import numpy as np
import pytest

from official_bert.inference.predictor import Predictor
from official_bert.metrics.tagging import character_scores, conlleval_report, find_entities, invalid_tags, score_tags
from official_bert.tasks.tagging.records import make_windows
from official_bert.tokenization import FullTokenizer
from tests.commands.conftest import arrays_of, assert_same_arrays, bytes_in, results_of
from tests.conftest import assert_refused, prints_error, run_here, run_script
from tests.record_files import read_records
from tests.reports import scores_of, sections_of

# The tag of a word determines its part of speech.
PHRASES = [[(word, "O")] for word in ("the", "rain", "snow", "warm", "broken", "committees")]
PHRASES += [[("harbour", "B-LOC")], [("bridge", "B-LOC")], *[[("mirror", "B-PER")]] * 2]
PHRASES += [[(word, "B-LOC"), ("town", "I-LOC")] for word in ("harbour", "bridge")]
SPLITS = {"train": 96, "dev": 24, "test": 20}
CONLL_NAMES = {"train": "eng.train", "dev": "eng.testa", "test": "eng.testb"}


def made_sentence(rng):
    """Generate words with their tags in IOB2."""
    words, tags = zip(*itertools.chain(*rng.choices(PHRASES, k=rng.randint(2, 5))), strict=True)
    return list(words), list(tags)


def columns(sentences):
    """Format sentences like CoNLL-2003, in documents of eight."""
    lines = []
    for number, (words, tags) in enumerate(sentences):
        lines += ["-DOCSTART- -X- -X- O\n", "\n"] if number % 8 == 0 else []
        speech = ["NN" if tag != "O" else "XX" for tag in tags]
        lines += [f"{word} {part} _ {tag}\n" for word, part, tag in zip(words, speech, tags, strict=True)]
        lines.append("\n")
    return "".join(lines)


@pytest.fixture(scope="module")
def corpus():
    rng = random.Random(1)
    return {split: [made_sentence(rng) for _ in range(count)] for split, count in SPLITS.items()}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory, corpus):
    """Files of the sentences in columns, named as in CoNLL."""
    folder = tmp_path_factory.mktemp("columns")
    for split, sentences in corpus.items():
        (folder / CONLL_NAMES[split]).write_text(columns(sentences))
    return folder


@pytest.fixture(scope="module")
def base(data_dir, one_layer_model):
    """The flags required by every run."""
    return {
        **one_layer_model, "data_dir": str(data_dir), "max_seq_length": 16, "train_batch_size": 8,
        "learning_rate": 2e-3, "num_train_epochs": 5.0,
    }  # fmt: skip


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory):
    """Settings and output of a run of the real script that trained, evaluated and predicted."""
    settings = {**base, "output_dir": str(tmp_path_factory.mktemp("trained") / "out")}
    result = run_script("run_ner.py", "--do_train", "--do_eval", "--do_predict", **settings)
    assert result.code == 0, result
    return settings, result.errors


@pytest.fixture
def copied(trained, tmp_path):
    """Settings with a copy of that run's folder, without the files of evaluation and prediction."""
    results = shutil.ignore_patterns("eval*", "test_*", "predict*")
    folder = shutil.copytree(trained[0]["output_dir"], tmp_path / "out", ignore=results)
    return {**trained[0], "output_dir": str(folder)}


@pytest.fixture
def settings(base, tmp_path):
    return {**base, "output_dir": str(tmp_path / "out")}


def run(settings, **more):
    run_here("run_ner", **{**settings, **more})


def read(settings, name):
    with open(os.path.join(settings["output_dir"], name), encoding="utf-8", newline="") as source:
        return source.read()


def written_tags(settings):
    """Return the last two columns of the predictions, the given and predicted tags, by sentence."""
    lines = [line.split(" ") for line in read(settings, "predictions.conll").splitlines() if line[:5] != "-DOCS"]
    sentences = [list(group) for has_word, group in itertools.groupby(lines, lambda row: len(row) > 1) if has_word]
    return [[[row[column] for row in sentence] for sentence in sentences] for column in (-2, -1)]


@pytest.mark.slow
def test_training_evaluation_and_prediction(trained, data_dir, corpus):
    settings, log = trained
    assert "96 training examples, 60 steps" in log
    assert json.loads(read(settings, "labels.json")) == ["O", "B-LOC", "B-PER", "I-LOC"]
    scores = results_of(settings)
    assert list(scores) == ["eval_accuracy", "eval_f1", "eval_loss", "eval_precision", "eval_recall", "global_step"]
    assert scores["global_step"] == 60
    assert scores["eval_f1"] > 0.9 and scores["eval_loss"] < 0.3
    test_scores = results_of(settings, "test_results.txt")
    assert list(test_scores) == sorted(name.replace("eval", "test") for name in scores)

    # The original lines with one more column, as conlleval expects them.
    original = (data_dir / "eng.testb").read_text().splitlines()
    lines = read(settings, "predictions.conll").splitlines()
    assert [line.rpartition(" ")[0] for line in lines] == original
    gold, predicted = written_tags(settings)
    assert gold == [tags for _, tags in corpus["test"]]
    own = score_tags(gold, predicted)
    assert read(settings, "test_report.txt") == conlleval_report(own)
    found = [test_scores[f"test_{name}"] for name in ("accuracy", "precision", "recall", "f1")]
    assert found == pytest.approx([own.accuracy, *own.total.scaled(1)], abs=1e-6)
    report = read(settings, "eval_report.txt")
    num_words = sum(len(words) for words, _ in corpus["dev"])
    num_entities = sum(len(find_entities(tags)) for _, tags in corpus["dev"])
    assert report.startswith(f"processed {num_words} tokens with {num_entities} phrases; found: ")
    assert f"FB1: {100 * scores['eval_f1']:6.2f}\n" in report
    assert report.strip().splitlines()[-1].split(":")[0].strip() == "PER"
    assert report.splitlines()[1] in log
    page = pathlib.Path(settings["output_dir"], "report.html")
    lines = sorted(" = ".join(score) for score in scores_of(page).items())
    assert lines == read(settings, "eval_results.txt").splitlines()
    assert [row[0] for row in sections_of(page)["By entity type"]["rows"]] == ["LOC", "PER"]


def of_characters(words, tags):
    """Return the lines of a sentence as in KLUE, with a period after the last word."""
    lines = []
    for word, tag in zip(words, tags, strict=True):
        inside = tag.replace("B-", "I-")
        lines += [f" \t{tag if tag[0] == 'I' else 'O'}"] if lines else []
        lines += [f"{letter}\t{inside if index else tag}" for index, letter in enumerate(word)]
    return "\n".join([f"## klue-ner\t{' '.join(words)}.", *lines, ".\tO", "\n"])


@pytest.mark.endurance
def test_characters_of_klue_are_tagged_and_scored(settings, corpus, tmp_path):
    for split, sentences in corpus.items():
        content = "".join(of_characters(*sentence) for sentence in sentences)
        (tmp_path / f"klue-ner-v1.1_{split}.tsv").write_text(content)
    flags = {"data_dir": str(tmp_path), "file_layout": "characters", "max_seq_length": 32}
    run(settings, do_train=True, do_eval=True, do_predict=True, **flags)
    scores = results_of(settings, "test_results.txt")
    assert scores["test_entity_macro_f1"] > 0.9 and scores["test_character_macro_f1"] > 0.9
    lines = read(settings, "predictions.conll").split("\n")
    assert [line.rpartition("\t")[0] for line in lines if "\t" in line and line[0] != "#"] == [
        line for line in content.split("\n") if "\t" in line and line[0] != "#"
    ]
    rows = [[line.split("\t") for line in part.split("\n")[1:]] for part in "\n".join(lines).strip().split("\n\n")]
    characters, gold, predicted = ([[row[column] for row in part] for part in rows] for column in (0, 1, 2))
    expected = character_scores(gold, predicted, characters)
    assert (scores["test_entity_macro_f1"], scores["test_character_macro_f1"]) == pytest.approx(expected, abs=1e-6)
    assert conlleval_report(score_tags(gold, predicted)) == read(settings, "test_report.txt")
    found = [answer.entities for answer in Predictor(settings["output_dir"])(list(map("".join, characters)))]
    assert [[entity[1:4] for entity in entities] for entities in found] == list(map(find_entities, predicted))
    assert {entity.text for entities in found for entity in entities} >= {"harbour town", "bridge", "mirror"}

    spans = [[[start, end, label] for label, start, end in find_entities(tags)] for tags in gold]
    rows = [{"text": "".join(text), "label": label} for text, label in zip(characters, spans, strict=True)]
    flags["predict_file"] = file_of(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "spans.jsonl")
    run(settings, do_predict=True, **flags)
    assert results_of(settings, "test_results.txt") == scores
    assert read(settings, "predictions.conll").split() == [
        cell for line in lines if line[:1] != "#" for cell in line.split()
    ]


@pytest.mark.endurance
def test_parts_of_speech_are_scored_by_accuracy_alone(settings):
    run(settings, do_train=True, do_eval=True, do_predict=True, tag_column=1, num_train_epochs=3.0, eval_steps=18)
    scores = results_of(settings)
    assert list(scores) == ["eval_accuracy", "eval_loss", "global_step"] and scores["eval_accuracy"] > 0.9
    assert list(results_of(settings, "test_results.txt")) == ["global_step", "test_accuracy", "test_loss"]
    assert not {"eval_report.txt", "test_report.txt"} & set(os.listdir(settings["output_dir"]))
    rows = sections_of(pathlib.Path(settings["output_dir"], "report.html"))["By tag"]["rows"]
    assert {row[0] for row in rows} == {"NN", "XX"}
    history = json.loads(read(settings, "best/evaluations.json"))
    assert history[-1][1] == pytest.approx(scores["eval_accuracy"], abs=1e-6)  # the deciding score
    assert [tagged.entities for tagged in Predictor(settings["output_dir"])(["the harbour town", "mirror"])] == [[], []]


@pytest.mark.endurance
def test_tags_that_follow_the_rules_need_no_training(settings, corpus, tmp_path):
    """After few steps, the most likely tags of single words break the rules."""
    run(settings, do_train=True, do_predict=True, num_train_epochs=1.0)
    assert any(invalid_tags(tags, "IOB2") for tags in written_tags(settings)[1])
    export = {"export_dir": str(tmp_path / "export"), "export_format": "tflite"}
    run(settings, do_eval=True, do_predict=True, do_export=True, constrained_decoding=True, **export)
    decoded = written_tags(settings)[1]
    assert not any(invalid_tags(tags, "IOB2") for tags in decoded)
    assert {tag for tags in decoded for tag in tags} >= {"O", "B-LOC", "I-LOC"}
    tagged = Predictor(export["export_dir"])([" ".join(words) for words, _ in corpus["test"]])
    assert [sentence.tags for sentence in tagged] == decoded


@pytest.mark.endurance
def test_a_crf_is_trained_and_decoded(settings, corpus):
    """A town is a place only after a place."""
    crf = {**settings, "head": "crf"}
    run(crf, do_train=True, do_eval=True, do_predict=True)
    assert results_of(crf)["eval_f1"] > 0.9
    arrays, labels = arrays_of(f"{crf['output_dir']}/model.ckpt-60"), json.loads(read(crf, "labels.json"))
    start, between, end = (arrays[f"tagging/{name}_transitions"] for name in ("start", "between", "end"))
    other, place, inside = map(labels.index, ("O", "B-LOC", "I-LOC"))
    assert start[inside] < start[place] and between[other, inside] < between[place, inside] and np.abs(end).max() > 0
    tagged = Predictor(crf["output_dir"])([" ".join(words) for words, _ in corpus["test"]])
    assert [sentence.tags for sentence in tagged] == written_tags(crf)[1]
    assert all(0 < share <= 1 + 1e-5 for sentence in tagged for share in sentence.probabilities)
    with prints_error("trained with --head=crf"):
        run(settings, do_eval=True)
    os.remove(os.path.join(crf["output_dir"], "run_config.json"))
    with prints_error("has the transitions of a CRF; give --head=crf"):
        run(settings, do_eval=True)


@pytest.mark.endurance
def test_document_context_fills_the_windows_of_a_document(copied, corpus, caplog):
    run(copied, do_eval=True, document_context=True)
    assert f"the checkpoints in {copied['output_dir']} were trained with document_context=False" in caplog.text
    words, documents = [words for words, _ in corpus["dev"]], [number // 8 for number in range(SPLITS["dev"])]
    tokenizer = FullTokenizer(copied["vocab_file"])
    windows = list(make_windows(words, tokenizer, max_seq_length=16, documents=documents))
    records = read_records(os.path.join(copied["output_dir"], "eval.tf_record"))
    for window, ids, mask in zip(windows, records["input_ids"], records["input_mask"], strict=True):
        assert ids[mask == 1].tolist() == [tokenizer.cls_id, *window.ids, tokenizer.sep_id]
    assert (records["label_ids"] > 0).sum() == sum(map(len, words)) < records["input_mask"].sum() / 1.3
    assert results_of(copied)["eval_f1"] > 0.5


@pytest.mark.endurance
def test_a_frozen_encoder_is_run_once(settings, files_of_model, corpus):
    frozen = {**settings, **files_of_model, "trainable_encoder": False, "feature_layers": "weighted_sum"}
    frozen |= {"num_train_epochs": 1.0, "learning_rate": 1e-2}
    run(frozen, do_train=True, do_eval=True, do_predict=True)
    arrays, initial = arrays_of(f"{frozen['output_dir']}/model.ckpt-12"), arrays_of(frozen["init_checkpoint"])
    assert_same_arrays(arrays, initial, [name for name in initial if name.startswith("bert/")])
    assert {name.split("/")[0] for name in arrays if "adam" in name} == {"tagging"}
    assert np.abs(arrays["tagging/layer_weights"]).max() > 0
    names = [f"{split}.features.tf_record" for split in ("train", "eval", "predict")]
    features = [pathlib.Path(frozen["output_dir"], name) for name in names]
    made, cached = [path.stat().st_mtime_ns for path in features], (results_of(frozen), written_tags(frozen))
    run(frozen, do_eval=True, do_predict=True)
    assert [path.stat().st_mtime_ns for path in features] == made
    assert (results_of(frozen), written_tags(frozen)) == cached
    tagged = Predictor(frozen["output_dir"])([" ".join(words) for words, _ in corpus["test"]])
    assert [sentence.tags for sentence in tagged] == cached[1][1]

    # The same checkpoint computed from the ids; without the run's settings nothing contradicts it.
    for path in (*features, features[0].with_name("run_config.json")):
        path.unlink()
    run({**frozen, "trainable_encoder": True}, do_eval=True, do_predict=True)
    assert not any(path.exists() for path in features)
    assert results_of(frozen) == pytest.approx(cached[0], abs=1e-5)
    assert written_tags(frozen) == cached[1]


def file_of(tmp_path, text, name="given.txt"):
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)


@pytest.mark.slow
def test_words_without_known_tags_are_predicted_and_not_scored(copied, tmp_path, caplog):
    run(copied, do_predict=True, predict_file=file_of(tmp_path, "the\nharbour\n\n\n\nmirror\n"))
    lines = read(copied, "predictions.conll").splitlines()
    assert [line.split(" ")[0] for line in lines] == ["the", "harbour", "", "", "", "mirror"]
    path = file_of(tmp_path, "the DT\nharbour NN\n\nmirror NN-B\n")
    run(copied, do_predict=True, predict_file=path, file_layout="columns")
    assert f"{path}: the tags 'DT', 'NN', 'NN-B' are not among those of {copied['output_dir']}; it is" in caplog.text
    assert "it is tagged, but not scored" in caplog.text and "count as errors" not in caplog.text
    assert not {"test_results.txt", "test_report.txt"} & set(os.listdir(copied["output_dir"]))
    before = bytes_in(copied["output_dir"])
    with prints_error("the tags 'DT', .* are not among those of .*, which are 'O', .*; check --tag_column=-1$"):
        run(copied, do_eval=True, eval_file=path)
    assert bytes_in(copied["output_dir"]) == before


@pytest.mark.slow
def test_unknown_tags_are_warned_of_and_count_as_errors(copied, tmp_path, caplog):
    path = file_of(tmp_path, "the O\nrain O\n\nthe O\nharbour B-MISC\nmirror B-PER\nsnow I-MISC\n")
    run(copied, do_eval=True, eval_file=path)
    assert f"{path}: the tags 'B-MISC', 'I-MISC' are not among those of {copied['output_dir']}; the 2" in caplog.text
    assert "the first of them in the sentence of line 4" in caplog.text
    assert results_of(copied)["eval_accuracy"] <= 4 / 6 + 1e-9
    assert "with 3 phrases" in read(copied, "eval_report.txt") and "MISC: precision:" in read(copied, "eval_report.txt")
    records = read_records(os.path.join(copied["output_dir"], "eval.tf_record"))
    assert (records["label_ids"] > 0).sum() == 4  # the loss covers only words with known tags


@pytest.mark.slow
def test_a_trained_model_keeps_its_meaning(copied, corpus, tmp_path):
    other = file_of(tmp_path, columns(corpus["train"]).replace("B-PER", "B-ORG"))
    before = bytes_in(copied["output_dir"])
    for changes, message in (
        ({"train_file": other, "do_train": True}, r"trained with 'O', 'B-LOC', 'B-PER', 'I-LOC' \(labels.json\); use"),
        ({"head": "bilstm", "do_predict": True}, "trained with --head=linear; use the same value"),
        ({"document_context": True, "do_train": True}, "was trained on examples with other --document_context;"),
    ):
        with prints_error(message):
            run(copied, **changes)
        assert bytes_in(copied["output_dir"]) == before, changes


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"data_dir": None}, ["--do_train needs --train_file, or --data_dir"]),
        ({"train_file": "the O\n\nharbour X B-LOC\n"}, ["given.txt, line 3: 3 columns, but line 1 has 2"]),
        ({"do_eval": True, "eval_file": "the O\n\nharbour\n"}, ["given.txt, line 3: 1 column, but line 1 has 2"]),
        ({"do_train": False, "do_predict": True}, ["no labels.json, which names the tags of a trained model; train"]),
        ({"train_file": "\n \n\n"}, ["given.txt has no sentences"]),
        ({"train_file": "the\nharbour\n\nmirror\n"}, ["line 1: column 0 cannot be both the word and the tag"]),
        ({"train_file": "the O\nharbour O\n"}, ["all words have the tag 'O'", "nothing to learn; check --tag_column"]),
        ({"word_column": 7}, ["eng.train, line 3: 4 columns, so there is no --word_column=7"]),
        ({"word_column": 2, "tag_column": 2}, ["--word_column=2 and --tag_column=2 are the same column"]),
        ({"feature_layers": "concat_last_four"}, ["--feature_layers=concat_last_four needs 4 layers, but the model"]),
        ({"lstm_units": 8}, ["--lstm_units", "--head=bilstm"]),
        ({"constrained_decoding": True, "train_file": "a I-X\nb B-X\n"}, ["--constrained_decoding", "are in IOB1"]),
        ({"head": "crf", "teacher": "t"}, ["--teacher and --head=crf exclude each other"]),
        ({"head": "crf", "use_xla": True}, ["--use_xla and --head=crf exclude each other"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_mistakes(settings, tmp_path, changes, parts):
    for name in {"train_file", "eval_file"} & changes.keys():
        changes = {**changes, name: file_of(tmp_path, changes[name])}
    assert_refused("run_ner", {"do_train": True, **settings, **changes}, *parts)
    folder = settings["output_dir"]
    assert not os.path.exists(folder) or {*os.listdir(folder)} <= {".lock"}


@pytest.mark.endurance
def test_tags_that_break_their_scheme_are_warned_of(copied, tmp_path, caplog):
    text = "the O\nharbour B-LOC\ntown I-LOC\nsnow O\nbridge B-LOC\n\nrain O\ntown I-LOC\n\n"
    path = file_of(tmp_path, text * 8)
    run(copied, do_eval=True, eval_file=path)
    assert f"{path}: 8 tags break the rules of IOB2, such as I-LOC in the sentence of line 7" in caplog.text
    assert "they are scored as by conlleval" in caplog.text and "learned" not in caplog.text
