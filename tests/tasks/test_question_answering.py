"""Asking questions of a text: with the golden model, and with a model whose answers are known."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
from keras import ops

from official_bert.checkpoints.loading import load_initial
from official_bert.config.bert_config import BertConfig
from official_bert.errors import UserError
from official_bert.modeling.span import SpanModel
from official_bert.tasks.question_answering import QuestionAnswerer
from official_bert.tasks.squad_answers import find_answers
from official_bert.tasks.squad_data import Question, SquadSet
from official_bert.tasks.squad_windows import TokenizedSquad, WindowOptions
from official_bert.tokenization import FullTokenizer
from official_bert.tokenization.alignment import align, pieces_of_range
from tests.conftest import GOLDEN

LENGTHS = {"max_seq_length": 64, "doc_stride": 24, "max_query_length": 16}
CONTEXTS = (
    "Professor Nwosu's café lectures (1987–1994) were free.\r\nZoe\u0301 Lindqvist came, in 1990, by train.",
    "東京都の人口は約1400万人である。首都は東京、古都は京都。",
    "서울은 대한민국의 수도이다. (한강이 흐른다)",
    "وُلِدَ الشَّاعِرُ في دِمَشْق، ثم سافر إلى مصر.",
    "\ufeffthe 👨\u200d👩\u200d👧 met ❤\ufe0f in the town 👍🏽 \u200b today",
)


@pytest.fixture(scope="module")
def tokenizer(vocab_file):
    return FullTokenizer(vocab_file)


@pytest.fixture(scope="module")
def model(model_dir):
    model = SpanModel(BertConfig.from_json_file(str(model_dir / "bert_config.json")))
    load_initial(str(GOLDEN / "squad" / "model.ckpt"), model.trainable_variables, required=lambda name: True)
    return model


class Chooser:
    """A model that would start and end an answer at given wordpieces; it notes what it has read."""

    encoder = SimpleNamespace(max_length=512, word_embeddings=np.zeros((1182, 1)))

    def __init__(self, tokenizer, starts, ends, *, nothing=-9.0, padding=-9.0):
        self._scores = [{tokenizer.vocab[piece]: logit for piece, logit in chosen.items()} for chosen in (starts, ends)]
        self._nothing, self._padding, self.read = nothing, padding, []

    def __call__(self, batch, training):
        assert not training
        self.read.append(batch)
        logits = []
        for scores in self._scores:
            values = np.full(batch["input_ids"].shape, self._nothing, np.float32)
            for index, logit in scores.items():
                values[batch["input_ids"] == index] = logit
            values[batch["input_mask"] == 0] = self._padding
            logits.append(ops.convert_to_tensor(values))
        return dict(zip(("start_logits", "end_logits"), logits, strict=True))


def filler(tokenizer, num_words, seed=0):
    """Words of one wordpiece each, among which "lamp", "bridge" and "rain" are not."""
    words = [piece for piece in tokenizer.vocab if piece.isalpha() and piece not in ("lamp", "bridge", "rain")]
    return random.Random(seed).choices(words, k=num_words)


def test_answers_are_those_of_one_window_after_the_other(model, tokenizer):
    context = " ".join([*filler(tokenizer, 300), CONTEXTS[0], *filler(tokenizer, 300, seed=1)])
    squad = SquadSet([context], [Question("q", "When did Zoë come?", 0, (), False)])
    tokenized = TokenizedSquad(squad, tokenizer, WindowOptions(**LENGTHS, answer_alignment="offsets"))
    windows = tokenized.prediction_windows()
    assert len(windows) > 16  # more than a batch
    logits = np.full((2, len(windows), 64), -1e9, np.float32)
    for row, window in enumerate(windows):
        packed = tokenized.pack(window)
        length = len(packed.input_ids)
        batch = {name: np.array([list(getattr(packed, name))]) for name in ("input_ids", "input_mask", "segment_ids")}
        outputs = model(batch, training=False)
        for side, name in enumerate(("start_logits", "end_logits")):
            logits[side, row, :length] = ops.convert_to_numpy(outputs[name])[0]
    for version_2 in (False, True):
        (expected,) = find_answers(
            tokenized, windows, *logits, n_best_size=20, max_answer_length=30, version_2=version_2
        )
        found = QuestionAnswerer(model, tokenizer, **LENGTHS, version_2=version_2).answer(
            "When did Zoë come?", context, top_k=20
        )
        assert [answer.text for answer in found] == [answer.text for answer in expected.ranked]
        assert [answer.start for answer in found] == [answer.position or 0 for answer in expected.ranked]
        for answer, wanted in zip(found, expected.ranked, strict=True):
            assert answer.probability == pytest.approx(wanted.probability, rel=1e-4)


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_texts_are_cut_out_of_the_context(model, vocab_file, do_lower_case):
    answerer = QuestionAnswerer(model, FullTokenizer(vocab_file, do_lower_case), **LENGTHS)
    for context in (*CONTEXTS, "  \n ".join(CONTEXTS * 3)):
        answers = answerer.answer("who?", context, top_k=20)
        assert [answer.rank for answer in answers] == list(range(1, len(answers) + 1))
        assert len({answer.text for answer in answers}) == len(answers)
        probabilities = [answer.probability for answer in answers]
        assert probabilities == sorted(probabilities, reverse=True)
        assert sum(probabilities) == pytest.approx(1)
        for answer in answers:
            assert answer.text
            assert answer.text == context[answer.start : answer.end]
    assert len(answers) == 20


def test_an_answer_is_found_wherever_it_stands_in_a_long_text(tokenizer):
    chooser = Chooser(tokenizer, {"lamp": 5.0}, {"bridge": 5.0})
    answerer = QuestionAnswerer(chooser, tokenizer, **LENGTHS)
    for place in (0, 45, 500, 999):
        words = filler(tokenizer, 1000)
        before = " ".join(words[:place])
        context = f"{before}\n Lamp of the  BRIDGE, {' '.join(words[place:])}"
        chooser.read.clear()
        best = answerer.answer("who is it?", context)[0]
        assert best.text == "Lamp of the  BRIDGE"
        assert best.start == len(before) + 2
        sizes = [batch["input_ids"].shape for batch in chooser.read]
        assert len(sizes) > 1
        assert all(rows <= 16 and columns == 64 for rows, columns in sizes)
        assert sum(rows for rows, _ in sizes) == 1 + -(-(len(align(context, tokenizer).ids) - 64 + 3 + 4) // 24)


def test_a_short_text_is_not_padded(tokenizer):
    chooser = Chooser(tokenizer, {"town": 5.0}, {"town": 5.0})
    QuestionAnswerer(chooser, tokenizer).answer("where?", "in the town")
    assert [batch["input_ids"].shape for batch in chooser.read] == [(1, 8)]
    assert chooser.read[0]["segment_ids"].tolist() == [[0, 0, 0, 0, 1, 1, 1, 1]]


def test_padding_is_never_among_the_best(tokenizer):
    chooser = Chooser(tokenizer, {"rain": 5.0}, {"rain": 5.0}, padding=100.0)
    context = " ".join([*filler(tokenizer, 60), "rain"])
    assert QuestionAnswerer(chooser, tokenizer, **LENGTHS).answer("what?", context)[0].text == "rain"
    assert any((batch["input_mask"] == 0).any() for batch in chooser.read)


@pytest.mark.parametrize("version_2", [False, True])
def test_a_question_that_scores_above_the_text_does_not_hide_it(tokenizer, version_2):
    chooser = Chooser(tokenizer, {"the": 9.0, "town": 1.0}, {"the": 9.0, "town": 1.0})
    answerer = QuestionAnswerer(chooser, tokenizer, max_query_length=30, version_2=version_2)
    answers = answerer.answer("the " * 25, "a town")
    assert {answer.text for answer in answers} == {"a town", "a", "town"} | ({""} if version_2 else set())
    assert answers[0].text == "town"


def test_no_answer_is_always_among_the_results_where_there_may_be_none(tokenizer):
    chooser = Chooser(tokenizer, {"town": 5.0, "[CLS]": 1.0}, {"town": 5.0, "[CLS]": 1.0})
    answerer = QuestionAnswerer(chooser, tokenizer, version_2=True)
    answers = answerer.answer("where?", "in the town", top_k=1)
    assert [(answer.text, answer.start, answer.end) for answer in answers] == [("town", 7, 11), ("", 0, 0)]
    ranks = [answer.rank for answer in answers]
    assert ranks[0] == 1 < ranks[1]
    every = answerer.answer("where?", "in the town", top_k=20)
    assert every[ranks[1] - 1] == answers[1]
    assert sum(answer.probability for answer in every) == pytest.approx(1)

    sure_of_none = Chooser(tokenizer, {"town": 1.0, "[CLS]": 5.0}, {"town": 1.0, "[CLS]": 5.0})
    answers = QuestionAnswerer(sure_of_none, tokenizer, version_2=True).answer("where?", "in the town", top_k=1)
    assert [answer.text for answer in answers] == [""]
    answers = QuestionAnswerer(sure_of_none, tokenizer).answer("where?", "in the town", top_k=1)
    assert [answer.text for answer in answers] == ["town"]


def test_probabilities_do_not_depend_on_how_many_answers_are_wanted(model, tokenizer):
    answerer = QuestionAnswerer(model, tokenizer, **LENGTHS)
    twenty = answerer.answer("who?", CONTEXTS[0], top_k=20)
    assert answerer.answer("who?", CONTEXTS[0], top_k=3) == twenty[:3]
    assert len(answerer.answer("who?", CONTEXTS[0], top_k=40)) == 40


def test_answers_are_no_longer_than_allowed(model, tokenizer):
    answerer = QuestionAnswerer(model, tokenizer, **LENGTHS, max_answer_length=2)
    for answer in answerer.answer("who?", CONTEXTS[0], top_k=20):
        first, last = pieces_of_range(align(CONTEXTS[0], tokenizer), answer.start, answer.end)
        assert last - first < 2


def test_what_cannot_be_answered_is_refused(model, tokenizer, vocab_file, tmp_path):
    answerer = QuestionAnswerer(model, tokenizer, **LENGTHS)
    for nothing in ("", " \n", "\u200b"):
        with pytest.raises(UserError, match="the question .* holds no words"):
            answerer.answer(nothing, "the town")
        with pytest.raises(UserError, match="the text to find answers in holds no words"):
            answerer.answer("who?", nothing)
    with pytest.raises(UserError, match="top_k=0 must be 1 or more"):
        answerer.answer("who?", "the town", top_k=0)
    with pytest.raises(UserError, match="--max_seq_length=65, but the model reads 64 wordpieces; give"):
        QuestionAnswerer(model, tokenizer, **{**LENGTHS, "max_seq_length": 65})
    with pytest.raises(UserError, match="--doc_stride=60 must be from 1 to 59"):
        QuestionAnswerer(model, tokenizer, **{**LENGTHS, "doc_stride": 60})
    larger = tmp_path / "vocab.txt"
    with open(vocab_file, encoding="utf-8") as source:
        larger.write_text(source.read().rstrip("\n") + "\nmore\n")
    with pytest.raises(UserError, match="has 1183 pieces, the model only 1182"):
        QuestionAnswerer(model, FullTokenizer(str(larger)), **LENGTHS)
