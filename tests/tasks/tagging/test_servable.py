"""Tagging in the graph, compared with Python windows, predictions of `run_ner.py`, and known entities."""

import functools
import random

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
from official_bert.serving.signatures import SIGNATURES, TEXT
from official_bert.tasks.tagging.reader import Entity
from official_bert.tasks.tagging.records import make_windows
from official_bert.tasks.tagging.servable import TaggingServable, split_at_blanks
from official_bert.tokenization import FullTokenizer, graph_operations
from official_bert.tokenization.sequences import join_texts
from tests.conftest import endurance
from tests.exports import TOLERANCE, graph_predictor
from tests.tasks.tagging.random_words import random_sentences

TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
TAG_SETS = (
    ("O", "I-PER", "I-LOC", "B-PER"),  # IOB1
    # O not first; types with hyphens, and no type
    ("I-work-of-art", "B-work-of-art", "B", "I", "S", "O", "I-PER", "E-PER", "S-PER", "S-LOC"),
    TAGS,
    ("O", "B-A", "I-A", "L-A", "U-A", "W-A", "M-B", "[-B", "]-B"),
    ("B-PER", "E-LOC"),
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
def signatures_for(model, config, tokenizer):
    """Return a function from `max_seq_length` to the signatures of an export of that model, made once."""

    @functools.cache
    def signatures(max_seq_length):
        servable = TaggingServable(model, config, tokenizer, tags=TAGS, max_seq_length=max_seq_length)
        return servable.signatures() if max_seq_length == 5 else {TEXT: servable.signature(TEXT)}

    return signatures


class Chooser:
    """A model that tags each wordpiece independently, by a table of logits, float [V, C]."""

    encoder = None
    weights = ()

    def __init__(self, table):
        self._table = tf.constant(table, tf.float32)

    def __call__(self, batch, training):
        assert not training
        return tf.gather(self._table, batch["input_ids"])


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


def trimmed(row, *names):
    """Return the cells of a row without its padding: "" and the corresponding numbers."""
    count = sum(cell != b"" for cell in row[names[0]])
    assert all(cell == b"" for cell in row[names[0]][count:])
    return [row[name][:count].tolist() for name in names]


def rows_of(outputs):
    """Return the outputs of a signature by sentence."""
    arrays = {name: values.numpy() for name, values in outputs.items()}
    (num_rows,) = {len(values) for values in arrays.values()}
    return [{name: values[row] for name, values in arrays.items()} for row in range(num_rows)]


def table_of(sentences):
    """Return the words of sentences as input of the signature `words`."""
    longest = max(map(len, sentences))
    return tf.constant([[*words, *[""] * (longest - len(words))] for words in sentences])


EVERY_LENGTH = pytest.mark.parametrize("max_seq_length", [5, *endurance(24)])


@pytest.mark.endurance
@EVERY_LENGTH
def test_what_the_graph_reads_are_the_windows_of_the_script(model, config, vocab_file, max_seq_length):
    rng = random.Random(max_seq_length)
    for do_lower_case in (True, False):
        tokenizer = FullTokenizer(vocab_file, do_lower_case)
        servable = TaggingServable(model, config, tokenizer, tags=TAGS, max_seq_length=max_seq_length)
        sentences = random_sentences(rng, 40)
        expected = [[] for _ in sentences]
        for sentence, ids, _ in records_of(sentences, tokenizer, max_seq_length):
            expected[sentence].append(ids)
        separators = [rng.choice([" ", "\t", "  ", "\n", " \r\n"]) for _ in sentences]
        texts = [separator.join(words) for separator, words in zip(separators, sentences, strict=True)]
        tokenized = {name: values.numpy() for name, values in servable.tokenize(text=tf.constant(texts)).items()}
        most = max(map(len, expected))
        assert tokenized["input_ids"].shape == (len(texts), most, max_seq_length)
        for row, windows in enumerate(expected):
            for name, values in tokenized.items():
                assert values[row, : len(windows)].tolist() == [ids[name] for ids in windows]
                assert not values[row, len(windows) :].any()
        assert most > 3


@pytest.mark.slow
@EVERY_LENGTH
def test_tags_are_those_of_the_windows_in_which_words_have_most_context(
    model, tokenizer, signatures_for, max_seq_length
):
    rng = random.Random(max_seq_length)
    sentences = [*random_sentences(rng, 40), ["town"] * 300]  # several batches of 32 windows
    rng.shuffle(sentences)
    ask_text = signatures_for(max_seq_length)["text"]
    found = rows_of(ask_text(text=tf.constant([" ".join(words) for words in sentences])))
    records = list(records_of(sentences, tokenizer, max_seq_length))
    assert len(records) > 64
    inputs = {name: np.array([ids[name] for _, ids, _ in records], np.int32) for name in IDS_SCHEMA.names}
    probabilities = tf.nn.softmax(model(inputs, training=False)).numpy()
    expected = [{} for _ in sentences]
    for (sentence, _, tagged), of_window in zip(records, probabilities, strict=True):
        expected[sentence] |= {word: of_window[position] for word, position in tagged}
    used = set()
    for row, words, by_word in zip(found, sentences, expected, strict=True):
        texts, tags, best = trimmed(row, "words", "tags", "probabilities")
        assert [text.decode() for text in texts] == words
        for number, (tag, probability) in enumerate(zip(tags, best, strict=True)):
            assert probability == pytest.approx(by_word[number].max(), abs=TOLERANCE)
            assert by_word[number][TAGS.index(tag.decode())] == pytest.approx(by_word[number].max(), abs=TOLERANCE)
        used |= set(tags)
        assert not row["probabilities"][len(words) :].any()
        entities, *_ = trimmed(row, "entities")
        assert len(entities) == len(find_entities([tag.decode() for tag in tags]))
    assert len(used) > 2  # the tags differ, so that a swapped tag would be noticed


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


def chooser_of(tokenizer, tags, rng):
    """Return a model with random tags for wordpieces, and for each tag its one-piece words with their probabilities."""
    size = tokenizer.vocabulary.size
    chosen = [rng.randrange(len(tags)) for _ in range(size)]
    logits = np.zeros((size, len(tags)))
    logits[np.arange(size), chosen] = [rng.uniform(0.5, 9) for _ in range(size)]
    sure = np.exp(logits).max(axis=1) / np.exp(logits).sum(axis=1)
    words = [(word, number) for word, number in tokenizer.vocab.items() if word.isalpha() and word.isascii()]
    by_tag = [[word for word, number in words if chosen[number] == tag] for tag in range(len(tags))]
    return Chooser(logits), by_tag, {word: sure[number] for word, number in words}


def asked_eagerly(servable):
    """A predictor without tracing, which would take longer than a batch or two."""
    servable.signature = lambda name: servable.answer
    return graph_predictor(servable)


@pytest.mark.endurance
@pytest.mark.parametrize("tags", TAG_SETS, ids=" ".join)
def test_entities_are_those_that_the_metrics_find(config, tokenizer, tags):
    rng = random.Random(len(tags))
    model, words_of_tag, sure = chooser_of(tokenizer, tags, rng)
    servable = TaggingServable(model, config, tokenizer, tags=tags, max_seq_length=8)
    predict = asked_eagerly(servable)
    numbers = [[rng.randrange(len(tags)) for _ in range(rng.randint(0, 30))] for _ in range(40)]
    texts, placed = [], []  # for each text, its words and their starts
    for row in numbers:
        text, words = rng.choice(["", " ", "\t\n"]), []
        for number in row:
            word = rng.choice(words_of_tag[number])
            words.append((word, len(text)))
            # Continuations do not change the tag of the first wordpiece, but count as characters.
            text += (
                word + rng.choice(["", "", "é", "👍", "\u200b", "!"]) + rng.choice([" ", "  ", "\t", "\r\n", "\xa0"])
            )
        texts.append(text.rstrip() if rng.random() < 0.5 else text)
        placed.append(words)
    num_entities = 0
    for row, text, words, found in zip(numbers, texts, placed, predict(texts), strict=True):
        own = text.split()
        assert found.words == own
        expected = []
        for kind, start, end in find_entities(found.tags):
            begin = words[start][1]
            stop = words[end - 1][1] + len(own[end - 1])
            least = min(found.probabilities[start:end])
            expected.append(Entity(text[begin:stop], kind, begin, stop, least))
        assert found.entities == expected
        num_entities += len(expected)
        for word, tag, number, probability in zip(own, found.tags, row, found.probabilities, strict=True):
            if word in sure:
                assert tag == tags[number]
                assert probability == pytest.approx(sure[word], abs=TOLERANCE)
    assert num_entities > 100


@pytest.mark.slow
def test_tags_that_mark_no_entities_give_none(config, tokenizer):
    tags = ("NN", "B-PER", "O")
    model, words_of_tag, _ = chooser_of(tokenizer, tags, random.Random(1))
    servable = TaggingServable(model, config, tokenizer, tags=tags, max_seq_length=8)
    words = [words[0] for words in words_of_tag] * 3
    found = asked_eagerly(servable)(" ".join(words))
    assert found.tags == list(tags) * 3
    assert found.entities == []


@pytest.mark.slow
def test_an_entity_ends_with_its_sentence_and_not_with_a_window(config, tokenizer):
    table = np.zeros((tokenizer.vocabulary.size, len(TAGS)))
    table[:, 2] = 5.0  # I-PER everywhere
    predict = asked_eagerly(TaggingServable(Chooser(table), config, tokenizer, tags=TAGS, max_seq_length=4))
    found = predict(["the town", "", " ", "a", "x y z", ""])
    assert [[entity.text for entity in sentence.entities] for sentence in found] == [
        ["the town"],
        [],
        [],
        ["a"],
        ["x y z"],
        [],
    ]
    text = "the town " * 100
    (entity,) = predict(text).entities
    assert (entity.text, entity.start, entity.end) == (text.rstrip(), 0, len(text) - 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "texts", [[], [""], [" \t\n"], ["", " ", ""], [b"\xff"], ["", "the", " "]], ids=lambda texts: repr(texts)
)
def test_sentences_without_words_have_no_tags(tokenizer, signatures_for, texts):
    functions = signatures_for(5)
    rows = rows_of(functions["text"](text=tf.constant(texts, tf.string)))
    found = [trimmed(row, "words", "tags", "probabilities") for row in rows]
    assert [[word.decode() for word in words] for words, _, _ in found] == [
        ["the"] if text == "the" else [] for text in texts
    ]
    assert [len(tags) for _, tags, _ in found] == [len(words) for words, _, _ in found]
    tokenized = functions["tokenize"](text=tf.constant(texts, tf.string))["input_ids"].numpy()
    for row in tokenized[[text != "the" for text in texts]] if texts else ():
        assert [piece for piece in row[0] if piece] == [tokenizer.cls_id, tokenizer.sep_id]


@pytest.mark.slow
def test_bytes_that_cannot_be_decoded_are_dropped_before_all_else(signatures_for):
    ask_text = signatures_for(5)["text"]
    broken = [b"Zo\xff\xc3\xab keeps\xed\xa0\x80 b\x80ees \xff\xfe in", b"\xf0\x9f bees \xe4", b"\xc0\x80 \xff"]
    whole = [text.decode("utf-8", "ignore").encode() for text in broken]
    assert whole[0] == "Zoë keeps bees  in".encode()
    found, expected = (ask_text(text=tf.constant(texts)) for texts in (broken, whole))
    for name, values in found.items():
        assert (values.numpy() == expected[name].numpy()).all(), name
    assert found["words"].numpy()[0].tolist() == ["Zoë".encode(), b"keeps", b"bees", b"in"]


@pytest.mark.endurance
def test_many_long_sentences_are_read_some_at_a_time_and_answers_are_bounded(config, vocab_file, monkeypatch):
    tokenizer = FullTokenizer(vocab_file)  # with a graph of its own
    for module in (graph_operations, servable_module):
        monkeypatch.setattr(module, "MOST_BYTES", 1_000)
    monkeypatch.setattr(graph_operations, "_GROUP_BYTES", 300)
    monkeypatch.setattr(servable_module, "MOST_CELLS", 1_000)
    rng = random.Random(3)
    model, words_of_tag, _ = chooser_of(tokenizer, TAGS, rng)
    functions = TaggingServable(model, config, tokenizer, tags=TAGS, max_seq_length=8).signatures()
    words = [[rng.choice(rng.choice(words_of_tag)) for _ in range(rng.randint(1, 60))] for _ in range(12)]
    for name, inputs in (("text", {"text": tf.constant([" ".join(row) for row in words])}), ("words", table_of(words))):
        inputs = inputs if isinstance(inputs, dict) else {"words": inputs}
        together = rows_of(functions[name](**inputs))
        for row, found in enumerate(together):
            (alone,) = rows_of(functions[name](**{key: values[row : row + 1] for key, values in inputs.items()}))
            for column, values in alone.items():
                assert values.tolist() == found[column][: len(values)].tolist()
    for name, inputs, message in (
        ("text", {"text": ["town " * 201]}, "text must have at most 1000 bytes per example, but one has. .1005"),
        ("words", {"words": [["town"] * 251]}, "words must have at most 1000 bytes per example"),
        ("tokenize", {"text": ["town " * 101] * 2}, "at most 1000 bytes in total"),
        ("text", {"text": ["a " * 400, "", ""]}, "limited to 1000 cells .* the number of cells would be. .1200"),
        ("words", {"words": [["town"] * 200] * 6}, "limited to 1000 cells"),
        ("tokenize", {"text": ["a " * 400, "", ""]}, "limited to 1000 cells"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            functions[name](**{key: tf.constant(values) for key, values in inputs.items()})


@pytest.mark.endurance
def test_sentences_that_are_split_get_the_same_tags(signatures_for):
    rng = random.Random(8)
    functions = signatures_for(5)
    assert set(functions) == {*SIGNATURES, "words"}
    for _ in range(2):
        sentences = random_sentences(rng, 30)
        texts = functions["text"](text=tf.constant([" ".join(words) for words in sentences]))
        tables = functions["words"](words=table_of(sentences))
        assert set(tables) == {"tags", "probabilities"}
        assert (tables["tags"].numpy() == texts["tags"].numpy()).all()
        np.testing.assert_allclose(tables["probabilities"], texts["probabilities"], atol=TOLERANCE)

        # Empty cells are never words and get no tags.
        scattered = []
        for words in sentences[:10]:
            cells = list(words)
            for _ in range(5):
                cells.insert(rng.randint(0, len(cells)), "")
            scattered.append(cells)
        scattered.append([""])
        cells = table_of(scattered).numpy()
        outputs = {name: values.numpy() for name, values in functions["words"](words=tf.constant(cells)).items()}
        assert outputs["tags"].shape == outputs["probabilities"].shape == cells.shape
        assert ((outputs["tags"] == b"") == (cells == b"")).all()
        assert ((outputs["probabilities"] == 0) == (cells == b"")).all()
        for row, words in enumerate(sentences[:10]):
            kept = outputs["tags"][row][cells[row] != b""]
            assert kept.tolist() == tables["tags"].numpy()[row, : len(words)].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (2, 0), (2, 2)])
def test_tables_without_words(signatures_for, shape):
    outputs = signatures_for(5)["words"](words=tf.fill(shape, ""))
    assert {tuple(values.shape) for values in outputs.values()} == {shape}
    assert not outputs["probabilities"].numpy().any()
