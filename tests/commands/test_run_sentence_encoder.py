"""`run_sentence_encoder` on small generated data: training, evaluation, vectors, export, and invalid flags."""

import glob
import json
import random
import re
from dataclasses import fields

import numpy as np
import pytest

from official_bert.commands.export_embeddings import EmbeddingExportConfig
from official_bert.commands.sentence_similarity import SimilarityConfig
from official_bert.commands.shared.edited_model import sentence_folder
from official_bert.commands.shared.models import ModelFiles, load_sentence_encoder
from official_bert.data.text_inputs import TextOrPair
from official_bert.inference.predictor import Predictor
from official_bert.inference.sentence_index import sentence_vectors
from official_bert.support.errors import UserError
from official_bert.tasks.sentence_encoder.options import SentenceEncoderConfig
from official_bert.training.model_files import complete_model_flags, read_model_files
from tests.commands.conftest import results_of
from tests.conftest import assert_refused, run_here


def words(vocab_file):
    with open(vocab_file, encoding="utf-8") as source:
        return [line.strip() for line in source if line.strip().isalpha() and len(line) > 4]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory, vocab_file):
    """Folder of triplets whose anchor and positive share most words, scored pairs, and texts with classes."""
    folder, rng, known = tmp_path_factory.mktemp("pairs"), random.Random(2), words(vocab_file)
    for split, count in (("train", 64), ("dev", 24)):
        rows, scored, classes = ["anchor\tpositive\tnegative\n"], ["a\tb\tscore\n"], ["text\tclass\n"]
        for number in range(count):
            drawn = rng.sample(known, 9)
            rows.append("\t".join(" ".join(part) for part in (drawn[:4], drawn[1:5], drawn[5:])) + "\n")
            scored.append(f"{' '.join(drawn[:4])}\t{' '.join(drawn[4 - number % 5 : 8 - number % 5])}\t{number % 5}\n")
            classes.append(f"{known[number % 3]} {' '.join(drawn[:3])}\t{'xyz'[number % 3]}\n")
        for name, lines in (("triplets", rows), ("scored", scored), ("classes", classes)):
            (folder / f"{name}.{split}.tsv").write_text("".join(lines))
    (folder / "equal.tsv").write_text("a\tb\ts\nx\ty\t1\nz\tw\t1\n")
    return folder


@pytest.fixture
def settings(data_dir, one_layer_model, tmp_path):
    folders = {"data_dir": str(data_dir), "output_dir": str(tmp_path / "out")}
    return {**one_layer_model, **folders, "max_seq_length": 16, "train_batch_size": 16, "learning_rate": 1e-3}


def files(name):
    return {"train_file": f"{name}.train.tsv", "eval_file": f"{name}.dev.tsv"}


def run(settings, **more):
    run_here("run_sentence_encoder", **settings, **more)


def sentence_encoder_of_run(folder, *, prompt=None, **flags):
    """The encoder of a command with these flags, completed from the folder."""
    given = {"init_checkpoint": folder, "candidates_file": "a", "query": "b", **flags}
    values = {field.name: field.default for field in fields(SimilarityConfig)} | given
    config = SimilarityConfig(**complete_model_flags(SimilarityConfig, values, given))
    assert config.max_seq_length == 16
    return load_sentence_encoder(config, ModelFiles(*read_model_files(config)), prompt=prompt)


@pytest.mark.slow
def test_a_run_learns_predicts_and_exports(settings, data_dir, tmp_path):
    columns = {"text_columns": "anchor,positive,negative", **files("triplets"), "query_prefix": "query: "}
    options = {"matryoshka_sizes": "8", "dense_size": 24, "pooling": "mean,bm25", "gradient_accumulation_steps": 2}
    options |= {"do_train": True, "num_train_epochs": 10.0, "eval_steps": 14}
    run(settings, **columns, **options, do_eval=True, do_predict=True, predict_file="triplets.dev.tsv")
    scores = results_of(settings)
    assert scores["global_step"] == 40
    assert scores["eval_mrr@10"] > 0.8
    assert scores["eval_triplet_accuracy"] > 0.9
    vectors = np.load(f"{settings['output_dir']}/vectors.npy")
    assert vectors.shape == (24, 3, 24)
    cosines = np.loadtxt(f"{settings['output_dir']}/similarities.tsv")
    np.testing.assert_allclose(cosines, np.einsum("nd,nkd->nk", vectors[:, 0], vectors[:, 1:]), atol=1e-5)
    # `Predictor` adds the prefix of anchors and reproduces the vectors of training; an export may have its own prefix
    # and vector size.
    rows = [line.split("\t") for line in (data_dir / "triplets.dev.tsv").read_text().splitlines()[1:]]
    anchors, positives, _ = zip(*rows, strict=True)
    predict = Predictor(settings["output_dir"])
    np.testing.assert_allclose(predict(list(anchors[:1])), vectors[:1, 0], atol=1e-5)
    np.testing.assert_allclose(predict.embed(list(anchors)), vectors[:, 0], atol=1e-5)
    for texts, prompt in ((anchors, None), (positives, "")):  # commands that compare sentences read the whole model
        encoder = sentence_encoder_of_run(settings["output_dir"], prompt=prompt)
        found = np.stack(list(sentence_vectors(map(TextOrPair, texts), encoder)))
        np.testing.assert_allclose(found, vectors[:, 0 if prompt is None else 1], atol=1e-5)
    assert encoder.prompts.by_name == {"query": "query: ", "document": ""}
    given = {"init_checkpoint": settings["output_dir"], "export_dir": str(tmp_path / "serving")}
    model_files = {name: settings[name] for name in ("bert_config_file", "vocab_file")}
    run_here("export_embeddings", **given, **model_files, prefix="", vector_size=8, export_format="tflite")
    expected = vectors[:, 1, :8] / np.linalg.norm(vectors[:, 1, :8], axis=1, keepdims=True)
    np.testing.assert_allclose(Predictor(given["export_dir"]).embed(list(positives)), expected, atol=1e-5)


@pytest.mark.endurance
def test_a_sparse_encoder_is_trained_and_read_by_others(settings, tmp_path, data_dir):
    """The regularizers make the vectors sparser; the folder for `SparseEncoder` has the same vectors."""
    columns = {"text_columns": "anchor,positive,negative", **files("triplets"), "pooling": "splade", "do_eval": True}
    run({**settings, "output_dir": str(tmp_path / "untrained")}, **columns)
    untrained = results_of({"output_dir": str(tmp_path / "untrained")})
    weights = dict.fromkeys(("query_regularizer_weight", "document_regularizer_weight"), 0.3)
    run(settings, **columns, **weights, do_train=True, num_train_epochs=5.0)
    assert results_of(settings)["eval_active_dims"] < untrained["eval_active_dims"] / 2
    given = {"init_checkpoint": settings["output_dir"], "to_hf": True, "output_dir": str(tmp_path / "theirs")}
    run_here("convert_hf_checkpoint", **given, **{name: settings[name] for name in ("bert_config_file", "vocab_file")})
    texts = (data_dir / "triplets.dev.tsv").read_text().split("\t")[:9]
    vectors = Predictor(settings["output_dir"]).embed(texts)
    np.testing.assert_allclose(Predictor(given["output_dir"]).embed(texts), vectors, atol=1e-5)
    assert np.count_nonzero(vectors, axis=1).max() < vectors.shape[1]
    modules = json.loads((tmp_path / "theirs" / "modules.json").read_text())
    assert [module["type"].rpartition(".")[2] for module in modules] == ["MLMTransformer", "SpladePooling"]
    settings = json.loads((tmp_path / "theirs" / "config_sentence_transformers.json").read_text())
    assert settings["model_type"] == "SparseEncoder"  # without it, sentence-transformers cannot load the folder


@pytest.mark.endurance
def test_order_of_scored_pairs_is_learned(settings):
    columns = {"text_columns": "a,b", "score_columns": "score", "max_score": 4.0, **files("scored")}
    run(settings, **columns, do_train=True, do_eval=True, num_train_epochs=4.0)
    scores = results_of(settings)
    assert set(scores) == {"eval_pearson", "eval_spearman", "global_step"}
    assert scores["eval_spearman"] > 0.7


@pytest.mark.slow
def test_the_nearest_text_is_of_the_same_class_and_sentence_transformers_get_the_model(settings, tmp_path, caplog):
    columns = {"text_columns": "text", "label_column": "class", **files("classes")}
    columns |= {"pooling": "mean,cls,lasttoken", "dense_size": 24, "query_prefix": "the ", "passage_prefix": "the "}
    run(settings, **columns, do_train=True, do_eval=True, num_train_epochs=4.0)
    assert results_of(settings)["eval_accuracy"] > 0.8

    given = {"init_checkpoint": settings["output_dir"], "to_hf": True, "output_dir": str(tmp_path / "theirs")}
    model_files = {name: settings[name] for name in ("bert_config_file", "vocab_file")}
    run_here("convert_hf_checkpoint", **given, **model_files)
    texts = ["the bees", "", "the town of the baker " * 10]
    expected = Predictor(settings["output_dir"]).embed(texts)
    np.testing.assert_allclose(Predictor(given["output_dir"]).embed(texts), expected, atol=1e-5)
    assert expected.shape == (3, 24) and np.ptp(expected, axis=0).max() > 0.01
    sentence_encoder_of_run(settings["output_dir"], pooling="mean")
    assert "trained as a sentence encoder with pooling=mean,cls,lasttoken and dense_size=24, " in caplog.text
    with pytest.raises(UserError, match="sentence-transformers does not support pooling=bm25, only cls, max, mean"):
        sentence_folder(SentenceEncoderConfig(**settings, **columns | {"pooling": "bm25"}, do_eval=True), {}, 8)
    config = SentenceEncoderConfig(**settings, **columns | {"pooling": "cls,mean", "dense_size": 0}, do_eval=True)
    pooling = sentence_folder(config, {}, 8)[0]["1_Pooling/config.json"]  # the format that all versions read
    assert {name for name, value in pooling.items() if value is True} == {
        "pooling_mode_cls_token", "pooling_mode_mean_tokens"
    }  # fmt: skip


@pytest.mark.slow
def test_classes_of_pairs_and_retrieval_of_a_collection(settings, tmp_path, data_dir, vocab_file):
    rng, known = random.Random(4), words(vocab_file)
    beir, rows = tmp_path / "beir", ["a\tb\tclass\n"]
    for _ in range(64):
        drawn = rng.sample(known, 8)
        is_same = rng.random() < 0.5
        other = drawn[:4][::-1] if is_same else drawn[4:]
        rows.append(f"{' '.join(drawn[:4])}\t{' '.join(other)}\t{'same' if is_same else 'other'}\n")
    (tmp_path / "pairs.tsv").write_text("".join(rows))
    (beir / "qrels").mkdir(parents=True)
    texts = [" ".join(rng.sample(known, 4)) for _ in range(20)]
    lines = [json.dumps({"_id": f"d{number}", "text": text}) for number, text in enumerate(texts)]
    (beir / "corpus.jsonl").write_text("\n".join(lines))
    (beir / "queries.jsonl").write_text("\n".join(line.replace('"d', '"q') for line in lines[:5]))
    judgments = "".join(f"q{number}\td{number}\t1\n" for number in range(5))
    (beir / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judgments)
    settings["data_dir"] = str(tmp_path)
    columns = {"text_columns": "a,b", "label_column": "class", "train_file": "pairs.tsv", "eval_file": "pairs.tsv"}
    columns |= {"do_train": True, "do_eval": True, "retrieval_dir": str(beir), "eval_steps": 24}
    run(settings, **columns, num_train_epochs=12.0)
    scores = results_of(settings)
    assert scores["eval_accuracy"] > 0.75
    assert scores["eval_recall@1"] == 1.0  # a query is the document itself
    (beir / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n" + judgments)
    with pytest.raises(
        UserError, match="retrieval_split=dev, but .* with retrieval_split=test: the best checkpoint so"
    ):
        run(settings, **columns, num_train_epochs=13.0, retrieval_split="dev")


@pytest.mark.parametrize("config_class", [SentenceEncoderConfig, EmbeddingExportConfig])
def test_the_help_names_every_pooling(config_class):
    (help_text,) = (field.metadata["help"] for field in fields(config_class) if field.name == "pooling")
    assert set(config_class.known_poolings) <= set(re.findall(r"\w+", help_text))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({}, "--text_columns"),
        ({"text_columns": "a", "train_file": "x"}, "needs --label_column"),
        ({"task_name": "qnli", "train_file": None, "loss": "cosine"}, "--task_name=qnli has no --loss=cosine"),
        ({"text_columns": "a,b", "loss": "cosine"}, "--loss=cosine needs --score_columns"),
        ({"text_columns": "a,b", "pooling": "splade,cls"}, "--pooling=splade cannot be used with another pooling or"),
        ({"text_columns": "a,b", "pooling": "splade", "dense_size": 8}, "--dense_size cannot be used with --pooling"),
        (
            {"text_columns": "a,b", "pooling": "splade", "do_export": True, "export_dir": "e", "vector_size": 8},
            "--vector_size cannot be used with --pooling=splade",
        ),
        ({"text_columns": "a,b", "query_regularizer_weight": 1.0}, "query_regularizer_weight needs --pooling=splade"),
        ({"text_columns": "a,b", "loss": "triplet"}, "needs three --text_columns"),
        ({"text_columns": "a,b", "loss": "softmax"}, "--loss=softmax needs two --text_columns and --label_column"),
        ({"text_columns": "a,b", "loss": "contrastive", "score_columns": "s"}, "does not use scores"),
        ({"text_columns": "a,b,c", "score_columns": "s"}, "needs one score column for each text column after"),
        ({"text_columns": "a,b", "score_columns": "s", "symmetric": True}, "--symmetric has no effect on --loss=cosen"),
        ({"text_columns": "a,b,c", "score_columns": "s,t", "margin": 2.0}, "--margin has no effect on --loss=distill"),
        (
            {"text_columns": "a,b", "loss": "distillation", "score_columns": "s", "temperature": 1.0},
            "--temperature has no effect on --loss=distillation",  # of pairs
        ),
        ({"text_columns": "a,b", "teacher": "t", "distillation_temperature": 1.0}, "--distillation_temperature cannot"),
        ({"text_columns": "a,a"}, "name the column a twice"),
        ({"text_columns": "anchor,positive", "matryoshka_sizes": "24,64"}, "--matryoshka_sizes: 64 must be less than"),
        ({"text_columns": "a,b", "label_column": "c", "matryoshka_sizes": "8"}, "cannot be used with --loss=softmax"),
        ({"text_columns": "a,b", "matryoshka_sizes": "8,x"}, "'x' is not a size"),
        ({"text_columns": "a,b", "pooling": "median"}, "'median' is unknown"),
        (
            {"text_columns": "a,b", "score_columns": "s", "train_file": "equal.tsv"},
            "equal.tsv: all 2 pairs have the same",
        ),
        (
            {"text_columns": "anchor,positive", "do_export": True, "export_dir": "none", "vector_size": 64},
            "--vector_size=64 exceeds the 32 components",
        ),
        ({"text_columns": "anchor,positive", "passage_prefix": "the " * 14}, "has 14 wordpieces, but --max_seq_length"),
        (
            {"text_columns": "anchor,positive", "train_batch_size": 1},
            "--train_batch_size=1 with 64 examples: ",
        ),
        ({"text_columns": "a,b", "train_file": "none.tsv"}, "none.tsv: there is no file"),
        ({"text_columns": "anchor,c", "train_file": "triplets.train.tsv"}, "no column 'c'"),
    ],
)
def test_mistakes_are_named(flags, message, settings):
    flags = {"train_file": "triplets.train.tsv", **settings, "do_train": True, **flags}
    assert_refused("run_sentence_encoder", flags, message)
    assert not glob.glob(f"{settings['output_dir']}/model.ckpt*")  # before training
