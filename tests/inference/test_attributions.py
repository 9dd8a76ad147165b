"""The contribution of each wordpiece to a prediction."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.inference.attention_reader import attribute
from official_bert.modeling.encoder import create_encoder
from official_bert.modeling.heads import ClassificationModel, SpanModel
from official_bert.modeling.tagging import TaggingModel, Transitions
from official_bert.tasks.classification.servable import ClassificationServable
from official_bert.tasks.classification.task import ClassOutputs
from official_bert.tasks.question_answering.data import WindowOptions
from official_bert.tasks.question_answering.servable import QuestionAnsweringServable
from official_bert.tasks.tagging.servable import TaggingServable
from tests.conftest import endurance, run_script, slow

TAGS = ("O", "B-LOC", "I-LOC")
TEXT, TEXT_B = "the harbour woke", "the town woke before the crates"


@pytest.fixture(scope="module")
def parts(one_layer_config_file, tokenizer):
    """A random encoder with large weights, and its tokenizer."""
    config = BertConfig.from_json_file(one_layer_config_file)
    keras.utils.set_random_seed(3)
    encoder = create_encoder(config)
    for weight in encoder.trainable_weights:
        weight.assign(weight + tf.random.normal(weight.shape, stddev=0.2, seed=1))
    return encoder, config, tokenizer


def with_large_head(model):
    for weight in model.head.weights:
        weight.assign(tf.random.normal(weight.shape, stddev=0.3, seed=2))
    return model


def classifier(parts, *outputs):
    encoder, config, tokenizer = parts
    outputs = ClassOutputs(*outputs)
    model = with_large_head(ClassificationModel(encoder, num_outputs=len(outputs.labels) or 1))
    return ClassificationServable(model, config, tokenizer, outputs=outputs, is_pair=True, max_seq_length=32)


def answerer(parts):
    encoder, config, tokenizer = parts
    options = WindowOptions(max_seq_length=32, doc_stride=16, max_query_length=16)
    return QuestionAnsweringServable(with_large_head(SpanModel(encoder)), config, tokenizer, options)


def tagger(parts, **options):
    encoder, config, tokenizer = parts
    model = with_large_head(TaggingModel(encoder, num_outputs=len(TAGS)))
    return TaggingServable(model, config, tokenizer, tags=TAGS, max_seq_length=32, **options)


LABELS = ("bad", "good", "mixed")
MODELS = {
    "labels": lambda parts: classifier(parts, "single_label", LABELS),
    "a number": lambda parts: classifier(parts, "regression", ()),
    "answers": answerer,
    "tags": tagger,
}


@pytest.mark.parametrize("kind", [*slow("labels", "answers", "tags"), *endurance("a number")])
def test_attributions_are_gradients_and_add_up(parts, kind):
    servable = MODELS[kind](parts)
    tokenizer = servable.tokenizer
    inputs = tokenizer([TEXT], None if kind == "tags" else [TEXT_B], max_seq_length=32)
    starts = [1, 2, len(tokenizer.encode("the harbour")) + 1] if kind == "tags" else []
    found = attribute(servable, inputs, starts)

    def score(ids, scaled=None):
        """Return the score of what was predicted; optionally with the embedding of a wordpiece made 0.1% longer."""
        words = servable.encoder.word_embeddings
        table = words.numpy()
        if scaled is not None:
            table[scaled] *= 1.001
        with keras.StatelessScope([(words, tf.constant(table))]):
            outputs = servable.predict({**inputs, "input_ids": tf.constant(ids)})
        if kind == "labels":
            return np.log(outputs["probabilities"].numpy()[0, LABELS.index(found.prediction)])
        if kind == "tags":
            tagged = dict(pair.split(": ") for pair in found.prediction.split(", "))
            words = [place for place, word in zip(starts, TEXT.split(), strict=True) if word in tagged]
            numbers = [TAGS.index(tagged[word]) for word in TEXT.split() if word in tagged]
            return np.log(outputs["probabilities"].numpy()[0, words, numbers]).sum()
        if kind == "a number":
            return outputs["scores"].numpy()[0]
        return max(
            start + end
            for first, start in enumerate(outputs["start_logits"].numpy()[0])
            for last, end in enumerate(outputs["end_logits"].numpy()[0])
            if tokenizer.decode(inputs["input_ids"][0, first : last + 1]) == found.prediction
        )

    ids = inputs["input_ids"]
    masked = np.where(np.isin(ids, [tokenizer.cls_id, tokenizer.sep_id]), ids, tokenizer.mask_id)
    difference = score(ids) - score(masked)
    assert abs(difference) > 0.03
    np.testing.assert_allclose(found.integrated_gradients.sum(), difference, rtol=0.02)
    assert found.integrated_gradients[0] == found.integrated_gradients[-1] == 0
    for identifier in set(ids[0].tolist()):
        expected = (score(ids, identifier) - score(ids)) / 0.001
        place = ids[0] == identifier
        np.testing.assert_allclose(found.gradient_times_input[place].sum(), expected, atol=0.02)


@pytest.mark.endurance
def test_the_prediction_is_that_of_thresholds_and_transitions(parts):
    inputs = parts[2]([TEXT], [TEXT_B], max_seq_length=32)
    for threshold, expected in ((0.001, "good"), (0.999, "bad")):
        servable = classifier(parts, "single_label", ("bad", "good"), [threshold])
        assert attribute(servable, inputs, []).prediction == expected
    inputs, starts = parts[2]([TEXT], max_seq_length=32), [1, 2, len(parts[2].encode("the harbour")) + 1]
    for start in ([9.0, 0.0, 0.0], [0.0, 0.0, 9.0]):  # the first tag is O or I-LOC
        others = np.where(np.eye(3), 9.0, 0.0), np.zeros(3)  # and stays
        transitions = Transitions(*(tf.constant(scores, tf.float32) for scores in (start, *others)))
        expected = ", ".join(f"{word}: {TAGS[np.argmax(start)]}" for word in TEXT.split())
        assert attribute(tagger(parts, transitions=transitions), inputs, starts).prediction == expected


def test_longer_inputs_than_the_model_reads_have_none(parts):
    servable = MODELS["labels"](parts)
    assert attribute(servable, servable.tokenizer(["the town " * 20], max_seq_length=40), []) is None


@pytest.mark.endurance
def test_the_word_that_decides_has_the_largest_attribution(files_of_model, tmp_path):
    rng = np.random.default_rng(1)
    fillers = ["the", "town", "woke", "before", "harbour", "and", "crates"]

    def text(label):
        words = rng.choice(fillers, 6).tolist()
        return " ".join([*words[:3], ("bright", "dark")[label], *words[3:]])

    rows = [f"{text(number % 2)}\t{('good', 'bad')[number % 2]}\n" for number in range(200)]
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "".join(rows))
    flags = {
        **files_of_model, "task_name": "custom", "data_dir": tmp_path, "train_file": "train.tsv",
        "text_a_column": "text", "label_column": "label", "max_seq_length": 24, "train_batch_size": 20,
        "learning_rate": 1e-3, "num_train_epochs": 8, "output_dir": tmp_path / "run",
    }  # fmt: skip
    assert run_script("run_classifier.py", "--do_train", **flags).code == 0
    for label, word in (("good", "bright"), ("bad", "dark")):
        given = {"text": text(label == "bad"), "output_file": tmp_path / "view.json", "format": "json"}
        assert run_script("view_attention", "--merge_words", init_checkpoint=tmp_path / "run", **given).code == 0
        view = json.loads((tmp_path / "view.json").read_text())
        assert view["attributions"]["prediction"] == label and view["notes"] == []
        values = view["attributions"]["integrated_gradients"]
        words = np.bincount(view["word_indices"], values)
        assert view["words"][words.argmax()] == word
