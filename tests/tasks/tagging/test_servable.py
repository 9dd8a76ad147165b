"""Tagging in the graph, compared with Python windows and with the entities that the metrics find."""

import random
import re
from itertools import chain

import numpy as np
import pytest
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.metrics.tagging import find_entities
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.encoder_options import UnpaddedLayout
from official_bert.modeling.tagging import TaggingModel
from official_bert.serving import servable as servable_module
from official_bert.serving.servable import IDS_SCHEMA
from official_bert.tasks.tagging.reader import TABLES, Entity, results
from official_bert.tasks.tagging.records import make_windows
from official_bert.tasks.tagging.servable import EntityFinder, TaggingServable, split_at_blanks
from official_bert.tokenization import FullTokenizer, graph_operations
from official_bert.tokenization.sequences import join_texts
from tests.exports import TOLERANCE, assert_same
from tests.tasks.tagging.random_words import random_sentences

TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
TAG_SETS = (
    ("O", "I-PER", "I-LOC", "B-PER"),  # IOB1
    # O not first; types with hyphens, and no type
    ("I-work-of-art", "B-work-of-art", "B", "I", "S", "O", "I-PER", "E-PER", "S-PER", "S-LOC"),
    ("O", "B-A", "I-A", "L-A", "U-A", "W-A", "M-B", "[-B", "]-B"),
    ("NN", "B-PER", "O"),  # not of entities
)


@pytest.fixture(scope="module")
def config(one_layer_config_file):
    return BertConfig.from_json_file(one_layer_config_file)


@pytest.fixture(scope="module")
def model(config):
    """A tagger with random weights, large enough that its tags differ."""
    tf.keras.utils.set_random_seed(3)
    model = TaggingModel(BertEncoder(config, layout=UnpaddedLayout), num_outputs=len(TAGS))
    for variable in model.trainable_variables:
        if variable.path.startswith("tagging/"):
            variable.assign(tf.random.normal(variable.shape, seed=5))
    return model


@pytest.fixture(scope="module")
def signatures(model, config, tokenizer):
    """Signatures of an export of the model, with windows of three wordpieces."""
    servable = TaggingServable(model, config, tokenizer, tags=TAGS, max_seq_length=5)
    table = tf.TensorSpec([None, None], tf.string)
    words = tf.function(servable.answer_words, input_signature=[table], autograph=False)
    return {"text": servable.signature("text"), "tokenize": servable.signature("tokenize"), "words": words}


def records_of(sentences, tokenizer, max_seq_length):
    """Return each window's sentence, ids, and tagged words with positions, as computed by the script."""
    for window in make_windows(sentences, tokenizer, max_seq_length=max_seq_length):
        joined = join_texts(window.ids, (), tokenizer.specials)
        values = {name: list(getattr(joined, name)) for name in IDS_SCHEMA.names}
        padded = {name: ids + [0] * (max_seq_length - len(ids)) for name, ids in values.items()}
        yield (
            window.sentence,
            padded,
            [(word, position + 1) for word, position in zip(window.words, window.positions, strict=True)],
        )


def arrays_of(outputs):
    return {name: values.numpy() for name, values in outputs.items()}


def expected_entities(text, tags, probabilities):
    """Return the entities of a sentence by its tags: each with the probability of its least certain one."""
    places, entities = [match.span() for match in re.finditer(r"\S+", text)], []
    for kind, start, end in find_entities(tags):
        (begin, _), (_, stop) = places[start], places[end - 1]
        entities.append(Entity(text[begin:stop], kind, begin, stop, min(probabilities[start:end])))
    return entities


def table_of(sentences, rng):
    """Return the words of sentences, between empty cells, as input of the signature `words`."""
    rows = [list(words) for words in sentences]
    for cells in rows:
        for _ in range(5):
            cells.insert(rng.randint(0, len(cells)), "")
    longest = max(map(len, rows))
    return tf.constant([[*cells, *[""] * (longest - len(cells))] for cells in rows])


@pytest.mark.slow
def test_tags_are_those_of_the_windows_in_which_words_have_most_context(model, tokenizer, signatures):
    rng = random.Random(5)
    sentences = [*random_sentences(rng, 20), ["town"] * 100]  # several batches of 32 windows
    rng.shuffle(sentences)
    texts = [rng.choice([" ", "\t", " \r\n"]).join(words) for words in sentences]
    outputs = arrays_of(signatures["text"](text=tf.constant(texts)))
    found = results(outputs)
    records = list(records_of(sentences, tokenizer, 5))
    assert len(records) > 64
    inputs = {name: np.array([ids[name] for _, ids, _ in records], np.int32) for name in IDS_SCHEMA.names}
    shares = tf.nn.softmax(model(inputs, training=False)).numpy()
    expected = [{} for _ in sentences]
    for (sentence, _, tagged), of_window in zip(records, shares, strict=True):
        expected[sentence] |= {word: of_window[position] for word, position in tagged}
    for row, (text, words, by_word) in enumerate(zip(texts, sentences, expected, strict=True)):
        assert found[row].words == words
        for number, (tag, probability) in enumerate(zip(found[row].tags, found[row].probabilities, strict=True)):
            assert probability == pytest.approx(by_word[number].max(), abs=TOLERANCE)
            assert by_word[number][TAGS.index(tag)] == pytest.approx(by_word[number].max(), abs=TOLERANCE)
        assert found[row].entities == expected_entities(text, *found[row][1:3])
        for length, names in zip((len(words), len(found[row].entities)), TABLES.values(), strict=True):
            assert not any(any(outputs[name][row, length:]) for name in names)
    assert len({tag for sentence in found for tag in sentence.tags}) > 2  # so that a swapped tag would be noticed

    for name, values in arrays_of(signatures["tokenize"](text=tf.constant(texts))).items():
        for number, row in enumerate(values):
            windows = [ids[name] for sentence, ids, _ in records if sentence == number]
            assert row[: len(windows)].tolist() == windows and not row[len(windows) :].any()

    table = table_of([*sentences, []], rng)
    outputs, is_word = arrays_of(signatures["words"](words=table)), table.numpy() != b""
    assert set(outputs) == {"tags", "probabilities"}
    assert ((outputs["tags"] != b"") == is_word).all() and not outputs["probabilities"][~is_word].any()
    for number, sentence in enumerate(found):
        assert outputs["tags"][number][is_word[number]].astype(str).tolist() == sentence.tags
        best = outputs["probabilities"][number][is_word[number]]
        np.testing.assert_allclose(best, sentence.probabilities, atol=TOLERANCE)


def test_words_are_those_that_python_splits():
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    texts = [f"a{'b'.join(every[start : start + 500])}{every[start]}c" for start in range(0, len(every), 500)]
    texts += ["", " ", "\u2028a\x1c\x85\u3000", "a\xa0b", "".join(map(chr, range(0x3100)))]
    words = split_at_blanks(tf.constant(texts))
    found = tf.RaggedTensor.from_row_splits(words.texts, words.row_splits).to_list()
    assert found == [[word.encode() for word in text.split()] for text in texts]
    starts, ends = (tf.RaggedTensor.from_row_splits(places, words.row_splits).to_list() for places in words[1:3])
    for text, *places in zip(texts, starts, ends, strict=True):
        assert [text[start:end] for start, end in zip(*places, strict=True)] == text.split()


@pytest.mark.parametrize("tags", TAG_SETS, ids=" ".join)
def test_entities_are_those_that_the_metrics_find(tags):
    rng, marks_entities = random.Random(len(tags)), "NN" not in tags
    sentences = [*random_sentences(rng, 40), [], ["town"]]
    texts = [rng.choice(["", " "]) + rng.choice(["  ", "\t", "\r\n", "\xa0"]).join(words) for words in sentences]
    numbers = [[rng.randrange(len(tags)) for _ in words] for words in sentences]
    probabilities = [np.float32([rng.random() for _ in words]) for words in sentences]
    words = split_at_blanks(tf.constant(texts))
    found = EntityFinder(tags)(texts, words, [*chain(*numbers)], np.concatenate(probabilities))
    expected = [
        expected_entities(text, [tags[number] for number in row], shares) if marks_entities else []
        for text, row, shares in zip(texts, numbers, probabilities, strict=True)
    ]
    *columns, counts = arrays_of(found).values()
    assert counts.tolist() == list(map(len, expected))
    columns = [[cell.decode() if isinstance(cell, bytes) else cell for cell in column] for column in columns]
    assert list(zip(*columns, strict=True)) == [*chain(*expected)]
    assert len(columns[0]) > 100 or not marks_entities


@pytest.mark.slow
def test_sentences_without_words_have_no_tags(tokenizer, signatures):
    for texts in ([], [""], ["", " \t\n", b"\xff", "the", " "]):
        found = results(arrays_of(signatures["text"](text=tf.constant(texts, tf.string))))
        expected = [["the"] if text == "the" else [] for text in texts]
        assert [sentence.words for sentence in found] == expected
        assert [len(sentence.tags) for sentence in found] == list(map(len, expected))
        tokenized = signatures["tokenize"](text=tf.constant(texts, tf.string))["input_ids"].numpy()
        for (first, *_), words in zip(tokenized, expected, strict=True):
            assert words or [piece for piece in first if piece] == [tokenizer.cls_id, tokenizer.sep_id]
    for shape in ((0, 0), (0, 3), (2, 0), (2, 2)):
        outputs = arrays_of(signatures["words"](words=tf.fill(shape, "")))
        assert {values.shape for values in outputs.values()} == {shape}
        assert not outputs["probabilities"].any()


@pytest.mark.slow
def test_bytes_that_cannot_be_decoded_are_dropped_before_all_else(signatures):
    broken = [b"Zo\xff\xc3\xab keeps\xed\xa0\x80 b\x80ees \xff\xfe in", b"\xf0\x9f bees \xe4", b"\xc0\x80 \xff"]
    whole = [text.decode("utf-8", "ignore").encode() for text in broken]
    assert whole[0] == "Zoë keeps bees  in".encode()
    found, expected = (arrays_of(signatures["text"](text=tf.constant(texts))) for texts in (broken, whole))
    np.testing.assert_equal(found, expected)
    assert found["words"][0].tolist() == ["Zoë".encode(), b"keeps", b"bees", b"in"]


@pytest.mark.endurance
def test_many_long_sentences_are_read_some_at_a_time_and_answers_are_bounded(model, config, vocab_file, monkeypatch):
    tokenizer = FullTokenizer(vocab_file)  # with a graph of its own
    for module in (graph_operations, servable_module):
        monkeypatch.setattr(module, "MOST_BYTES", 1_000)
    monkeypatch.setattr(graph_operations, "_GROUP_BYTES", 300)
    monkeypatch.setattr(servable_module, "MOST_CELLS", 1_000)
    rng = random.Random(3)
    functions = TaggingServable(model, config, tokenizer, tags=TAGS, max_seq_length=8).signatures()
    words = [rng.choices(["the", "town", "harbour", "x"], k=rng.randint(1, 60)) for _ in range(12)]
    inputs = {"text": tf.constant([" ".join(row) for row in words]), "words": table_of(words, rng)}
    for name, values in inputs.items():
        together = arrays_of(functions[name](values))
        for row in range(len(words)):
            for column, (cells,) in arrays_of(functions[name](values[row : row + 1])).items():
                assert_same(cells.tolist(), together[column][row, : len(cells)].tolist())
    for name, values, message in (
        ("text", ["town " * 201], "text must have at most 1000 bytes per example, but one has. .1005"),
        ("words", [["town"] * 251], "words must have at most 1000 bytes per example"),
        ("tokenize", ["town " * 101] * 2, "at most 1000 bytes in total"),
        ("text", ["a " * 400, "", ""], "limited to 1000 cells .* the number of cells would be. .1200"),
        ("words", [["town"] * 200] * 6, "limited to 1000 cells"),
        ("tokenize", ["a " * 400, "", ""], "limited to 1000 cells"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            functions[name](tf.constant(values))
