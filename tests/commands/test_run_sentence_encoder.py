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
from official_bert.tasks.sentence_encoder.options import SentenceEncoderConfig
from official_bert.training.model_files import complete_model_flags, read_model_files
from tests.commands.conftest import converted, of_run, results_of, table, write_rows
from tests.conftest import assert_refused, prints_error, run_here


def words(vocab_file):
    with open(vocab_file, encoding="utf-8") as source:
        return [line.strip() for line in source if line.strip().isalpha() and len(line) > 4]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory, vocab_file):
    """Folder of triplets whose anchor and positive share most words, scored pairs, and texts with classes."""
    folder, rng, known = tmp_path_factory.mktemp("pairs"), random.Random(2), words(vocab_file)
    for split, count in (("train", 64), ("dev", 24)):
        drawn = [rng.sample(known, 9) for _ in range(count)]
        triplets = [(part[:4], part[1:5], part[5:]) for part in drawn]
        scored = [(part[:4], part[4 - i % 5 : 8 - i % 5], [str(i % 5)]) for i, part in enumerate(drawn)]
        classes = [([known[i % 3], *part[:3]], ["xyz"[i % 3]]) for i, part in enumerate(drawn)]
        for name, header, rows in (
            ("triplets", ("anchor", "positive", "negative"), triplets),
            ("scored", ("a", "b", "score"), scored),
            ("classes", ("text", "class"), classes),
        ):
            write_rows(folder / f"{name}.{split}.tsv", header, [map(" ".join, row) for row in rows])
    write_rows(folder / "equal.tsv", ("a", "b", "s"), [("x", "y", 1), ("z", "w", 1)])
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
    assert scores["global_step"] == 40 and scores["eval_mrr@10"] > 0.8 and scores["eval_triplet_accuracy"] > 0.9
    vectors = np.load(f"{settings['output_dir']}/vectors.npy")
    assert vectors.shape == (24, 3, 24)
    cosines = np.loadtxt(f"{settings['output_dir']}/similarities.tsv")
    np.testing.assert_allclose(cosines, np.einsum("nd,nkd->nk", vectors[:, 0], vectors[:, 1:]), atol=1e-5)
    # `Predictor` adds the prefix of anchors and reproduces the vectors of training; an export may have its own prefix
    # and vector size.
    anchors, positives, _ = zip(*table(data_dir, "triplets.dev.tsv")[1:], strict=True)
    predict = Predictor(settings["output_dir"])
    np.testing.assert_allclose(predict(list(anchors[:1])), vectors[:1, 0], atol=1e-5)
    np.testing.assert_allclose(predict.embed(list(anchors)), vectors[:, 0], atol=1e-5)
    for texts, prompt in ((anchors, None), (positives, "")):  # commands that compare sentences read the whole model
        encoder = sentence_encoder_of_run(settings["output_dir"], prompt=prompt)
        found = np.stack(list(sentence_vectors(map(TextOrPair, texts), encoder)))
        np.testing.assert_allclose(found, vectors[:, 0 if prompt is None else 1], atol=1e-5)
    assert encoder.prompts.by_name == {"query": "query: ", "document": ""}
    export = {"export_dir": str(tmp_path / "serving"), "export_format": "tflite"}
    run_here("export_embeddings", **of_run(settings["output_dir"]), **export, prefix="", vector_size=8)
    expected = vectors[:, 1, :8] / np.linalg.norm(vectors[:, 1, :8], axis=1, keepdims=True)
    np.testing.assert_allclose(Predictor(export["export_dir"]).embed(list(positives)), expected, atol=1e-5)


@pytest.mark.endurance
def test_a_sparse_encoder_is_trained_and_read_by_others(settings, tmp_path, data_dir):
    """The regularizers make the vectors sparser; the folder for `SparseEncoder` has the same vectors."""
    columns = {"text_columns": "anchor,positive,negative", **files("triplets"), "pooling": "splade", "do_eval": True}
    run({**settings, "output_dir": str(tmp_path / "untrained")}, **columns)
    untrained = results_of({"output_dir": str(tmp_path / "untrained")})
    weights = dict.fromkeys(("query_regularizer_weight", "document_regularizer_weight"), 0.3)
    run(settings, **columns, **weights, do_train=True, num_train_epochs=5.0)
    assert results_of(settings)["eval_active_dims"] < untrained["eval_active_dims"] / 2
    theirs = converted(settings["output_dir"], tmp_path / "theirs")
    texts = (data_dir / "triplets.dev.tsv").read_text().split("\t")[:9]
    vectors = Predictor(settings["output_dir"]).embed(texts)
    np.testing.assert_allclose(Predictor(theirs).embed(texts), vectors, atol=1e-5)
    assert np.count_nonzero(vectors, axis=1).max() < vectors.shape[1]
    modules = json.loads((theirs / "modules.json").read_text())
    assert [module["type"].rpartition(".")[2] for module in modules] == ["MLMTransformer", "SpladePooling"]
    model_type = json.loads((theirs / "config_sentence_transformers.json").read_text())["model_type"]
    assert model_type == "SparseEncoder"  # without it, sentence-transformers cannot load the folder


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

    texts = ["the bees", "", "the town of the baker " * 10]
    expected = Predictor(settings["output_dir"]).embed(texts)
    theirs = converted(settings["output_dir"], tmp_path / "theirs")
    np.testing.assert_allclose(Predictor(theirs).embed(texts), expected, atol=1e-5)
    assert expected.shape == (3, 24) and np.ptp(expected, axis=0).max() > 0.01
    sentence_encoder_of_run(settings["output_dir"], pooling="mean")
    assert "trained as a sentence encoder with pooling=mean,cls,lasttoken and dense_size=24, " in caplog.text

    def pooling_of(pooling):
        config = SentenceEncoderConfig(**settings, **columns | {"pooling": pooling, "dense_size": 0}, do_eval=True)
        return sentence_folder(config, {}, 8)[0]["1_Pooling/config.json"]  # the format that all versions read

    with prints_error("sentence-transformers does not support pooling=bm25, only cls, max, mean"):
        pooling_of("bm25")
    names = {name for name, value in pooling_of("cls,mean").items() if value is True}
    assert names == {"pooling_mode_cls_token", "pooling_mode_mean_tokens"}


@pytest.mark.slow
def test_classes_of_pairs_and_retrieval_of_a_collection(settings, tmp_path, vocab_file):
    rng, known = random.Random(4), words(vocab_file)
    rows = []
    for number in range(64):
        drawn = rng.sample(known, 8)
        other, label = (drawn[:4][::-1], "same") if number % 2 else (drawn[4:], "other")
        rows.append((" ".join(drawn[:4]), " ".join(other), label))
    write_rows(tmp_path / "pairs.tsv", ("a", "b", "class"), rows)
    beir = tmp_path / "beir"
    (beir / "qrels").mkdir(parents=True)
    lines = [json.dumps({"_id": f"d{number}", "text": row[0]}) for number, row in enumerate(rows[:20])]
    (beir / "corpus.jsonl").write_text("\n".join(lines))
    (beir / "queries.jsonl").write_text("\n".join(line.replace('"d', '"q') for line in lines[:5]))
    for split in ("test", "dev"):
        judgments = [(f"q{number}", f"d{number}", 1) for number in range(5)]
        write_rows(beir / "qrels" / f"{split}.tsv", ("query-id", "corpus-id", "score"), judgments)
    columns = {"text_columns": "a,b", "label_column": "class", "train_file": "pairs.tsv", "eval_file": "pairs.tsv"}
    settings |= {**columns, "data_dir": str(tmp_path), "do_train": True, "do_eval": True, "retrieval_dir": str(beir)}
    run(settings, eval_steps=24, num_train_epochs=12.0)
    scores = results_of(settings)
    assert scores["eval_accuracy"] > 0.75
    assert scores["eval_recall@1"] == 1.0  # a query is the document itself
    with prints_error("retrieval_split=dev, but .* with retrieval_split=test: the best checkpoint so"):
        run(settings, eval_steps=24, num_train_epochs=13.0, retrieval_split="dev")


@pytest.mark.parametrize("config_class", [SentenceEncoderConfig, EmbeddingExportConfig])
def test_the_help_names_every_pooling(config_class):
    (help_text,) = (field.metadata["help"] for field in fields(config_class) if field.name == "pooling")
    assert set(config_class.known_poolings) <= set(re.findall(r"\w+", help_text))


SPLADE, EXPORT = {"text_columns": "a,b", "pooling": "splade"}, {"do_export": True, "export_dir": "none"}
SCORED = {"text_columns": "a,b", "score_columns": "s"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({}, "--text_columns"),
        ({"text_columns": "a", "train_file": "x"}, "needs --label_column"),
        ({"task_name": "qnli", "train_file": None, "loss": "cosine"}, "--task_name=qnli has no --loss=cosine"),
        ({"text_columns": "a,b", "loss": "cosine"}, "--loss=cosine needs --score_columns"),
        ({**SPLADE, "pooling": "splade,cls"}, "--pooling=splade cannot be used with another pooling or"),
        ({**SPLADE, "dense_size": 8}, "--dense_size cannot be used with --pooling"),
        ({**SPLADE, **EXPORT, "vector_size": 8}, "--vector_size cannot be used with --pooling=splade"),
        ({"text_columns": "a,b", "query_regularizer_weight": 1.0}, "query_regularizer_weight needs --pooling=splade"),
        ({"text_columns": "a,b", "loss": "triplet"}, "needs three --text_columns"),
        ({"text_columns": "a,b", "loss": "softmax"}, "--loss=softmax needs two --text_columns and --label_column"),
        ({**SCORED, "loss": "contrastive"}, "does not use scores"),
        ({"text_columns": "a,b,c", "score_columns": "s"}, "needs one score column for each text column after"),
        ({**SCORED, "symmetric": True}, "--symmetric has no effect on --loss=cosen"),
        ({"text_columns": "a,b,c", "score_columns": "s,t", "margin": 2.0}, "--margin has no effect on --loss=distill"),
        ({**SCORED, "loss": "distillation", "temperature": 1.0}, "--temperature has no effect on --loss=distillation"),
        ({"text_columns": "a,b", "teacher": "t", "distillation_temperature": 1.0}, "--distillation_temperature cannot"),
        ({"text_columns": "a,a"}, "name the column a twice"),
        ({"text_columns": "anchor,positive", "matryoshka_sizes": "24,64"}, "--matryoshka_sizes: 64 must be less than"),
        ({"text_columns": "a,b", "label_column": "c", "matryoshka_sizes": "8"}, "cannot be used with --loss=softmax"),
        ({"text_columns": "a,b", "matryoshka_sizes": "8,x"}, "'x' is not a size"),
        ({"text_columns": "a,b", "pooling": "median"}, "'median' is unknown"),
        ({**SCORED, "train_file": "equal.tsv"}, "equal.tsv: all 2 pairs have the same"),
        (
            {"text_columns": "anchor,positive", **EXPORT, "vector_size": 64},
            "--vector_size=64 exceeds the 32 components",
        ),
        ({"text_columns": "anchor,positive", "passage_prefix": "the " * 14}, "has 14 wordpieces, but --max_seq_length"),
        ({"text_columns": "anchor,positive", "train_batch_size": 1}, "--train_batch_size=1 with 64 examples: "),
        ({"text_columns": "a,b", "train_file": "none.tsv"}, "none.tsv: there is no file"),
        ({"text_columns": "anchor,c", "train_file": "triplets.train.tsv"}, "no column 'c'"),
    ],
)
def test_mistakes_are_named(flags, message, settings):
    flags = {"train_file": "triplets.train.tsv", **settings, "do_train": True, **flags}
    assert_refused("run_sentence_encoder", flags, message)
    assert not glob.glob(f"{settings['output_dir']}/model.ckpt*")  # before training
