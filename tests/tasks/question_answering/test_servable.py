"""Question answering in the graph, compared with `find_answers` and with a model with known answers."""

import collections
import random
import resource
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.loading import load
from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.encoder_options import UnpaddedLayout
from official_bert.modeling.heads import SpanModel
from official_bert.serving import servable as servable_module
from official_bert.serving.servable import IDS_SCHEMA
from official_bert.tasks.question_answering.answers import MASKED_LOGIT, find_answers
from official_bert.tasks.question_answering.data import Question, SquadSet, TokenizedSquad, WindowOptions
from official_bert.tasks.question_answering.reader import results
from official_bert.tasks.question_answering.servable import QuestionAnsweringServable
from official_bert.tokenization import FullTokenizer, graph_operations
from tests.conftest import GOLDEN
from tests.exports import graph_predictor

OPTIONS = WindowOptions(max_seq_length=64, doc_stride=24, max_query_length=30, answer_alignment="offsets")
CONTEXTS = (
    "Professor Nwosu's café lectures (1987–1994) were free.\r\nZoe\u0301 Lindqvist came, in 1990, by train.",
    "東京都の人口は約1400万人である。首都は東京、古都は京都。",
    "서울은 대한민국의 수도이다. (한강이 흐른다)",
    "وُلِدَ الشَّاعِرُ في دِمَشْق، ثم سافر إلى مصر.",
    "\ufeffthe 👨\u200d👩\u200d👧 met ❤\ufe0f in the town 👍🏽 \u200b today",
)


@pytest.fixture(scope="module")
def config(one_layer_config_file):
    return BertConfig.from_json_file(one_layer_config_file)


@pytest.fixture(scope="module")
def model(config):
    model = SpanModel(BertEncoder(config, layout=UnpaddedLayout))
    load(CheckpointReader(str(GOLDEN / "squad" / "model.ckpt")), model.trainable_variables)
    return model


class Chooser:
    """A model that starts and ends answers at chosen wordpieces, and records the shapes of its inputs."""

    encoder = SimpleNamespace(word_embeddings=np.zeros((1182, 1)))
    weights = ()

    def __init__(self, tokenizer):
        self._vocab, self.shapes = tokenizer.vocab, []
        self._scores = [tf.Variable(tf.zeros([1182])) for _ in ("start", "end")]
        self._padding = tf.Variable(0.0)

    def choose(self, starts, ends, *, padding=-9.0):
        """Set the logits of pieces and padding, and clear the recorded shapes."""
        for scores, chosen in zip(self._scores, (starts, ends), strict=True):
            values = np.full([1182], -9.0)
            for piece, logit in chosen.items():
                values[self._vocab[piece]] = logit
            scores.assign(values)
        self._padding.assign(padding)
        self.shapes.clear()

    def __call__(self, batch, training):
        assert not training
        ids, is_padding = batch["input_ids"], batch["input_mask"] == 0
        tf.py_function(lambda ids: self.shapes.append(tuple(ids.shape)), [ids], [])
        logits = [tf.where(is_padding, self._padding, tf.gather(scores, ids)) for scores in self._scores]
        return dict(zip(("start_logits", "end_logits"), logits, strict=True))


@pytest.fixture(scope="module")
def chooser(tokenizer):
    return Chooser(tokenizer)


@pytest.fixture(scope="module")
def ask_chooser(chooser, config, tokenizer):
    """Ask a servable of the chooser that may give null answers."""
    options = {"version_2": True, "top_k": 5}
    return graph_predictor(QuestionAnsweringServable(chooser, config, tokenizer, OPTIONS, **options))


@pytest.fixture(scope="module")
def program(model, config, tokenizer):
    """The signature `text` of a model that may give null answers, or up to 8 wordpieces."""
    settings = {"max_answer_length": 8, "version_2": True, "top_k": 20}
    return QuestionAnsweringServable(model, config, tokenizer, OPTIONS, **settings).signature("text")


def filler(tokenizer, num_words, seed=0):
    """Return words of one wordpiece each, except "lamp", "bridge" and "rain"."""
    words = [piece for piece in tokenizer.vocab if piece.isalpha() and piece not in ("lamp", "bridge", "rain")]
    return random.Random(seed).choices(words, k=num_words)


def expected_answers(model, tokenizer, question, context):
    """Return the answers of the Python path, with windows batched by length, so that there is no padding."""
    squad = SquadSet([context], [Question("q", question, 0, (), False)])
    tokenized = TokenizedSquad(squad, tokenizer, OPTIONS)
    windows = tokenized.windows
    rows_of_length = collections.defaultdict(list)
    joined = [tokenized.join(window) for window in windows]
    for row, sequence in enumerate(joined):
        rows_of_length[len(sequence.input_ids)].append(row)
    logits = np.full((2, len(windows), OPTIONS.max_seq_length), MASKED_LOGIT, np.float32)
    for length, rows in rows_of_length.items():
        batch = {name: np.array([list(getattr(joined[row], name)) for row in rows]) for name in IDS_SCHEMA.names}
        outputs = model(batch, training=False)
        logits[:, rows, :length] = [outputs["start_logits"], outputs["end_logits"]]
    (found,) = find_answers(tokenized, *logits, n_best_size=20, max_answer_length=8, version_2=True)
    return found, len(windows)


@pytest.mark.slow
def test_answers_are_those_of_the_python_path(model, program, tokenizer):
    rng = random.Random(64)
    numbers_of_words = (40, *(rng.randint(1, 30) for _ in range(5)))  # of which at most 30 are read
    questions = [" ".join(filler(tokenizer, number, seed)) for seed, number in enumerate(numbers_of_words)]
    numbers_of_words = (3, *(rng.randint(1, 150) for _ in range(3)))
    contexts = [" ".join(filler(tokenizer, number, seed)) for seed, number in enumerate(numbers_of_words)]
    contexts.append("  \n ".join([*filler(tokenizer, 60), *CONTEXTS, *filler(tokenizer, 60, seed=1)]))
    contexts.append("the " * 120)  # the same few texts repeatedly
    outputs = program(question=tf.constant(questions), context=tf.constant(contexts))
    outputs = {name: values.numpy() for name, values in outputs.items()}
    num_windows, num_wordpieces = [], set()
    for row, (question, context) in enumerate(zip(questions, contexts, strict=True)):
        expected, number = expected_answers(model, tokenizer, question, context)
        num_windows.append(number)
        ranked, length = expected.ranked[:20], len(expected.ranked[:20])
        np.testing.assert_allclose(
            outputs["probabilities"][row, :length], [answer.probability for answer in ranked], atol=1e-5
        )
        # The order of answers whose scores differ only by rounding is undefined.
        found = zip(outputs["answers"][row], outputs["starts"][row], outputs["ends"][row], strict=True)
        found = {(text.decode(), start, end) for text, start, end in list(found)[:length]}
        assert len({text for text, _, _ in found}) == length
        for text, start, end in found - {("", 0, 0)}:
            assert text and text == context[start:end]
            first, last = tokenizer.encode_with_offsets(context).in_range(start, end)
            num_wordpieces.add(last - first + 1)
        expected_places = {
            (answer.text, answer.position or 0, (answer.position or 0) + len(answer.text)) for answer in ranked
        }
        if context is contexts[-1]:  # windows of the same words have the same scores, so the place is undefined, too
            found, expected_places = ({text for text, _, _ in places} for places in (found, expected_places))
        assert found == expected_places
        assert outputs["answers"][row, 0].decode() == ranked[0].text
        assert (outputs["probabilities"][row, length:] == 0).all()
        assert outputs["null_odds"][row] == pytest.approx(expected.null_odds, abs=1e-5)
        (null,) = [answer for answer in expected.ranked if not answer.text]
        assert outputs["null_probabilities"][row] == pytest.approx(null.probability, abs=1e-5)
    assert max(num_windows) > 4 and min(num_windows) == 1
    assert max(num_wordpieces) == 8


@pytest.mark.slow
def test_bytes_that_cannot_be_decoded_are_dropped_before_all_else(program):
    broken = [b"Zo\xff\xc3\xab keeps\xed\xa0\x80 b\x80ees", b"\xf0\x9f bees \xe4"]
    whole = [text.decode("utf-8", "ignore").encode() for text in broken]
    assert whole[0] == "Zoë keeps bees".encode()
    question = tf.constant(["who \udc80?".encode("utf-8", "surrogatepass")] * 2)
    found, expected = (program(question=question, context=tf.constant(context)) for context in (broken, whole))
    for name, values in found.items():
        assert (values.numpy() == expected[name].numpy()).all(), name


@pytest.mark.slow
def test_a_very_long_text_takes_no_more_memory_than_it_has_to(program, tokenizer):
    context = tf.constant([" ".join(filler(tokenizer, 30_000))])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    program(question=tf.constant(["who is it?"]), context=context)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # KiB


@pytest.mark.slow
def test_neither_padding_nor_the_question_hides_the_text(chooser, ask_chooser, tokenizer):
    chooser.choose({"rain": 5.0}, {"rain": 5.0}, padding=100.0)
    assert ask_chooser(("what?", " ".join([*filler(tokenizer, 60), "rain"])))[0].text == "rain"
    chooser.choose({"the": 9.0, "town": 1.0}, {"the": 9.0, "town": 1.0})
    words = [word for word in filler(tokenizer, 1500) if word not in ("the", "town")]  # more windows than one batch
    long = " ".join([*words[:1000], "town", *words[1000:]])
    answers, found = ask_chooser([("the " * 25, "a town"), ("the " * 25, long)])
    assert answers[0].text == "town" and {answer.text for answer in answers} == {"a", "town", ""}
    assert (found[0].text, found[0].start) == ("town", long.index(" town ") + 1)
    assert len({answer.text for answer in found} - {""}) == 5


@pytest.mark.slow
def test_no_answer_is_always_among_the_results_where_there_may_be_none(chooser, ask_chooser):
    chooser.choose({"town": 5.0, "[CLS]": 1.0}, {"town": 5.0, "[CLS]": 1.0})
    few = ask_chooser(("where?", "in the town"))
    assert chooser.shapes == [(1, 8)]  # not padded
    assert [(few[0].text, few[0].start, few[0].end), few[1].text] == [("town", 7, 11), ""]
    assert sum(answer.probability for answer in few) == pytest.approx(1)
    *best, null = ask_chooser(("where?", "town a town of the town in the town"))  # below more answers than requested
    assert len(best) == 5 and all(answer.text.startswith("town") for answer in best)
    assert (null.text, null.start, null.end) == ("", 0, 0)


@pytest.mark.slow
def test_where_there_is_nothing_to_read_nothing_is_found(chooser, ask_chooser, config, tokenizer):
    chooser.choose({"town": 1.0, "[CLS]": 5.0}, {"town": 1.0, "[CLS]": 5.0})
    version_1 = QuestionAnsweringServable(chooser, config, tokenizer, OPTIONS, top_k=5)
    outputs = version_1.answer(tf.constant(["who?", ""]), tf.constant([" \u200b", "in the town"]))
    blank, unasked = results({name: values.numpy() for name, values in outputs.items()})
    assert (blank, unasked[0].text) == ([], "town")
    blank, unasked = ask_chooser([("who?", " \u200b"), ("", "in the town")])
    assert ([answer.text for answer in blank], unasked[0].text) == ([""], "")
    assert ask_chooser([]) == []


@pytest.mark.endurance
def test_many_long_contexts_are_read_some_at_a_time_and_longer_ones_refused(chooser, config, vocab_file, monkeypatch):
    tokenizer = FullTokenizer(vocab_file)  # with a graph of its own
    for module in (graph_operations, servable_module):
        monkeypatch.setattr(module, "MOST_BYTES", 2_000)
    monkeypatch.setattr(graph_operations, "_GROUP_BYTES", 500)
    # In most windows ends precede starts.
    chooser.choose({"rain": 5.0, "lamp": 4.0}, {"bridge": 5.0, "lamp": 4.0})
    servable = QuestionAnsweringServable(chooser, config, tokenizer, OPTIONS, top_k=20)
    ask = servable.signature("text")
    contexts = [
        f"{'bridge ' * 25}{' '.join(filler(tokenizer, number, number))}{' rain' * 25}" for number in (0, 50, 9, 150)
    ]
    contexts += ["", "lamp", *contexts[:3]]
    together = ask(question=tf.constant(["who? " * 500] * len(contexts)), context=tf.constant(contexts))
    for row, context in enumerate(contexts):
        alone = ask(question=tf.constant(["who? " * 500]), context=tf.constant([context]))
        for name, values in together.items():
            assert values[row].numpy().tolist() == alone[name][0].numpy().tolist(), (name, context)
        assert not context or alone["answers"][0, 0].numpy() != b""
    long = {"question": tf.constant(["who?"]), "context": tf.constant(["rain " * 500])}
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 2000 bytes per example, but one has. .2500"):
        ask(**long)
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 2000 bytes in total here, but has. .2500"):
        servable.signature("tokenize")(**long)


@pytest.mark.slow
def test_texts_in_unequal_numbers_are_refused(program):
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have the same number of examples"):
        program(question=tf.constant(["who?"]), context=tf.constant(["a", "b"]))
