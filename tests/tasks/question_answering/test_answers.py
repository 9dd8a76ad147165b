"""Answers from logits: compared with the reference and the plain rules, edge cases, and many scripts."""

import json
import random

import numpy as np
import pytest
from absl import logging

from official_bert.tasks.question_answering.answers import final_text, find_answers, predicted_texts, write_answers
from official_bert.tasks.question_answering.data import (
    Answer,
    Question,
    SquadSet,
    TokenizedSquad,
    WindowOptions,
    read_squad,
)
from official_bert.tokenization import BasicTokenizer, FullTokenizer, load_vocab
from tests.conftest import GOLDEN, golden_arrays
from tests.tasks.question_answering.plain_squad import plain_answers, plain_features
from tests.tasks.question_answering.question_files import HARD_WORDS, golden, random_content
from tests.tokenization.hard_texts import SETTINGS


@pytest.mark.parametrize("name", ["squad_v1", "squad_v2"])
def test_answers_are_those_of_the_reference(name, tokenizer, tmp_path):
    case, options, path = golden(name)
    config, version_2 = case["config"], name == "squad_v2"
    tokenized = TokenizedSquad(read_squad(path, for_training=False, version_2=version_2), tokenizer, options)
    logits = golden_arrays(f"squad/{name}_logits.npz")
    rules = {name: config[name] for name in ("n_best_size", "max_answer_length")}
    answers = find_answers(tokenized, logits["start_logits"], logits["end_logits"], version_2=version_2, **rules)
    predictions = predicted_texts(answers, config["null_score_diff_threshold"] if version_2 else None)
    write_answers(str(tmp_path), answers, predictions)
    expected = {"predictions": case["predictions"], "nbest_predictions": case["nbest"]}
    if version_2:
        expected["null_odds"] = case["null_odds"]
    assert {path.name for path in tmp_path.iterdir()} == {f"{stem}.json" for stem in expected}
    for stem, content in expected.items():
        assert (tmp_path / f"{stem}.json").read_text() == json.dumps(content, indent=4) + "\n"


def test_final_texts_are_those_of_the_reference():
    pairs = json.loads((GOLDEN / "squad" / "final_text_pairs.json").read_text())
    for pair in pairs:
        assert final_text(pair["pred"], pair["orig"], BasicTokenizer(pair["do_lower_case"])) == pair["final"]
    assert len(pairs) == 8


def test_answers_are_those_of_the_plain_rules_with_ties_everywhere(vocab_file, tmp_path):
    vocab = load_vocab(vocab_file)
    words = [piece for piece in vocab if piece.isalpha()][:300] + HARD_WORDS * 10
    rng, numpy_rng = random.Random(6), np.random.default_rng(6)
    num_answers = 0
    for settings in [*SETTINGS.values()] * 3:
        tokenizer = FullTokenizer(vocab_file, **settings._asdict())
        max_tokens = rng.choice([4, 12, 40])
        lengths = {"max_seq_length": 8 + 3 + max_tokens, "max_query_length": 8}
        lengths["doc_stride"] = rng.randint(1, max_tokens - 1)
        rules = {"n_best_size": rng.choice([1, 3, 10, 100]), "max_answer_length": rng.choice([1, 4, 30])}
        rules["version_2"] = rng.random() < 0.5
        content = random_content(rng, words)
        path = tmp_path / "squad.json"
        path.write_text(json.dumps(content))
        squad = read_squad(str(path), for_training=False, version_2=rules["version_2"])
        tokenized = TokenizedSquad(squad, tokenizer, WindowOptions(**lengths))
        windows = tokenized.windows
        shape = len(windows), lengths["max_seq_length"] + 3
        starts, ends = numpy_rng.integers(-3, 3, (2, *shape)).astype(np.float32) / 4
        found = find_answers(tokenized, starts, ends, **rules)
        plain = list(plain_features(content, vocab, settings, **lengths, for_training=False, version_2=False))
        for answer, question in zip(found, squad.questions, strict=True):
            rows = [row for row, window in enumerate(windows) if squad.questions[window.question_index] == question]
            features = [feature for feature in plain if feature["id"] == question.id]
            if not features:  # an empty context: the reference has no window, and version 2 fails
                assert answer.best_text == ("" if rules["version_2"] else "empty")
                continue
            ranked, odds = plain_answers(features, starts[rows].tolist(), ends[rows].tolist(), settings, **rules)
            assert [entry[:4] for entry in answer.ranked] == ranked
            if odds is not None:
                assert answer.null_odds == odds
            num_answers += len(ranked)
    assert num_answers > 1500


def ask(tokenizer, context, *, starts=(), ends=(), version_2=False, alignment="reference", **rules):
    """Answer a question about a context that fits a window; starts and ends are (position, logit), others -9."""
    squad = SquadSet([context], [Question("q", "who", 0, (), False)])
    tokenized = TokenizedSquad(squad, tokenizer, WindowOptions(64, 20, 8, answer_alignment=alignment))
    logits = np.full((2, 1, 64), -9, np.float32)
    for row, chosen in zip(logits[:, 0], (starts, ends), strict=True):
        for position, logit in chosen:
            row[position] = logit
    rules = {"n_best_size": 20, "max_answer_length": 30, "verbose_logging": False, **rules}
    (answer,) = find_answers(tokenized, *logits, version_2=version_2, **rules)
    return answer


def test_without_any_span_version_1_answers_empty_and_version_2_nothing(tokenizer):
    for context in ("", "\u200b", "the menu"):
        chosen = {"starts": [(60, 5), (0, -1)], "ends": [(60, 5), (0, -2)], "n_best_size": 1}
        answer = ask(tokenizer, context, **chosen)
        assert (answer.ranked, answer.null_odds) == ([("empty", 1.0, 0.0, 0.0, None)], None)
        assert predicted_texts([answer]) == {"q": "empty"}
        answer = ask(tokenizer, context, **chosen, version_2=True)
        assert (answer.ranked, answer.null_odds) == ([("", 1.0, -1.0, -2.0, None)], -3.0)
        for threshold in (-100.0, 0.0, 100.0):
            assert predicted_texts([answer], threshold) == {"q": ""}


def test_a_text_without_spaces_is_tokenized_once_for_all_candidates(tokenizer, monkeypatch):
    texts, tokenize = [], BasicTokenizer.tokenize
    monkeypatch.setattr(BasicTokenizer, "tokenize", lambda self, text: texts.append(text) or tokenize(self, text))
    places = [(place, 1) for place in range(3, 23)]
    answer = ask(tokenizer, "\u6771\u4eac\u306f" * 20, starts=places, ends=places, n_best_size=20)
    assert len(answer.ranked) == 1
    assert texts.count(answer.best_text) == 2  # for the wordpieces, and for the candidates


def test_verbose_logging_says_why_the_words_are_the_answer(tokenizer, monkeypatch):
    lines = []
    monkeypatch.setattr(logging, "info", lambda text, *values: lines.append(text % values))
    chosen = {"starts": [(3, 5)], "ends": [(3, 5)], "n_best_size": 1}
    assert ask(tokenizer, "東京は", **chosen).ranked[0].text == "東京は"
    assert lines == []
    ask(tokenizer, "東京は", **chosen, verbose_logging=True)
    assert lines == [
        "cannot find '[UNK]' in '東京は', which is returned as a whole: it is not in the tokenized original"
    ]
    tokenizer = BasicTokenizer()
    assert final_text("the", "the\u3000menu", tokenizer, verbose=True) == "the\u3000menu"
    assert final_text("", "the", tokenizer, verbose=True) == "the"
    assert lines[1].endswith("tokenization adds or deletes characters")
    assert lines[2].endswith("it is empty")


# A context, its gold answer, and the reference's result for the gold answer's pieces: first with every character as a
# piece, then with the golden vocabulary, which lacks most of these words.
SCRIPTS = {
    "english": ("The mayor, Ada Birk (1871-1902), planted it.", "1871", "1871", "(1871-1902),"),
    "accent": ("Zoe\u0301 Lindqvist's menu.", "Zoe\u0301 Lindqvist", "Zoe\u0301 Lindqvist's", "Zoe\u0301 Lindqvist's"),
    "korean": ("그는 서울에서 태어났다.", "서울", "서울에서", "서울에서"),
    "chinese": ("他在北京大学\u3000毕业，去了上海。", "北京大学", "他在北京大学\u3000毕业，去了上海。", None),
    "arabic": ("وُلِدَ في القاهرة، مصر.", "القاهرة", "القاهرة", "القاهرة،"),
    "emoji": ("She sent 🎉🎂 and 👍🏽! to him", "👍🏽", "👍🏽", "👍🏽!"),
}


@pytest.fixture(scope="module")
def spelling_tokenizer(tmp_path_factory):
    """A tokenizer whose pieces are the single characters of all contexts."""
    text = "".join(context for context, *_ in SCRIPTS.values())
    wordpieces = sorted(set("".join(BasicTokenizer().tokenize(text))))
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    lines = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *wordpieces, *(f"##{piece}" for piece in wordpieces)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return FullTokenizer(str(path))


def from_gold_positions(tokenizer, alignment, context, gold):
    """Return the answer text if a window's gold positions are predicted exactly."""
    answer = Answer(gold, context.index(gold))
    squad = SquadSet([context], [Question("q", "who", 0, (answer,), False)])
    tokenized = TokenizedSquad(squad, tokenizer, WindowOptions(96, 50, 8, answer_alignment=alignment))
    (window,) = tokenized.training_windows([0], version_2=False)
    starts, ends = np.zeros((2, 1, 96), np.float32)
    starts[0, window.start_position] = ends[0, window.end_position] = 1
    (found,) = find_answers(tokenized, starts, ends, n_best_size=1, max_answer_length=1000, version_2=False)
    return found.ranked[0]


@pytest.mark.parametrize("script", SCRIPTS)
def test_answers_in_scripts_are_exact_with_offsets_and_the_references_without(script, spelling_tokenizer, tokenizer):
    context, gold, spelt, unknown = SCRIPTS[script]
    found = from_gold_positions(spelling_tokenizer, "offsets", context, gold)
    assert (found.text, found.position) == (gold, context.index(gold))
    found = from_gold_positions(spelling_tokenizer, "reference", context, gold)
    assert (found.text, found.position) == (spelt, None)
    if unknown:
        assert from_gold_positions(tokenizer, "reference", context, gold).text == unknown
    else:
        assert from_gold_positions(tokenizer, "offsets", context, gold).text == gold
