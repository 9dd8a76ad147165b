"""Windows and their records: compared with the reference and the plain rules, and edge cases."""

import json
import random

import numpy as np
import pytest

from official_bert.data.record_files import RecordFile, write_split
from official_bert.support.errors import UserError
from official_bert.tasks.question_answering.data import (
    FIRST_UNIQUE_ID,
    PREDICTION_SCHEMA,
    TRAINING_SCHEMA,
    Answer,
    Question,
    SquadSet,
    TokenizedSquad,
    TrainingWindows,
    WindowOptions,
    read_squad,
    tokenize_contexts,
)
from official_bert.tokenization import FullTokenizer, load_vocab
from tests.record_files import read_records
from tests.tasks.question_answering.plain_squad import plain_best_span, plain_features, plain_spans
from tests.tasks.question_answering.question_files import HARD_WORDS, golden, random_content
from tests.tokenization.hard_texts import SETTINGS

NAMES = ("squad_v1", "squad_v2")
OPTIONS = WindowOptions(max_seq_length=24, doc_stride=6, max_query_length=8)


def written(path, split):
    """Write a split's records; return their number."""
    schema = TRAINING_SCHEMA if isinstance(split, TrainingWindows) else PREDICTION_SCHEMA
    return write_split(RecordFile(str(path), schema.sized(S=split.options.max_seq_length)), split)


def as_feature(tokenized, window):
    """Return a window in the format of the golden features."""
    joined = tokenized.join(window)
    context = tokenized.contexts[tokenized.squad.questions[window.question_index].context_index]
    words = context.word_of_piece[window.first : window.first + window.num_wordpieces].tolist()
    return {
        "tokens": tokenized.tokenizer.convert_ids_to_tokens(joined.input_ids),
        "input_ids": joined.input_ids,
        "segment_ids": list(joined.segment_ids),
        "token_to_orig_map": {str(window.offset + place): word for place, word in enumerate(words)},
        "token_is_max_context": {
            str(window.offset + place): flag for place, flag in enumerate(tokenized.has_max_context(window).tolist())
        },
    }


def expected_records(features, max_seq_length, questions=None):
    """Return the arrays of golden features as written by the reference."""

    def padded(numbers):
        return numbers + [0] * (max_seq_length - len(numbers))

    columns = {
        "unique_ids": [[FIRST_UNIQUE_ID + number] for number in range(len(features))],
        "input_ids": [padded(feature["input_ids"]) for feature in features],
        "input_mask": [padded([1] * len(feature["input_ids"])) for feature in features],
        "segment_ids": [padded(feature["segment_ids"]) for feature in features],
    }
    if questions:
        columns["start_positions"] = [[feature["start_position"]] for feature in features]
        columns["end_positions"] = [[feature["end_position"]] for feature in features]
        columns["is_impossible"] = [[int(questions[feature["example_index"]].is_impossible)] for feature in features]
    return {name: np.array(rows) for name, rows in columns.items()}


@pytest.mark.parametrize("answer_alignment", ["reference", "offsets"])
@pytest.mark.parametrize("name", NAMES)
def test_features_to_predict_are_those_of_the_reference(name, answer_alignment, tokenizer, tmp_path):
    case, options, path = golden(name)
    squad = read_squad(path, for_training=False, version_2=name == "squad_v2")
    options = WindowOptions(options.max_seq_length, options.doc_stride, options.max_query_length, answer_alignment)
    tokenized = TokenizedSquad(squad, tokenizer, options)
    features = case["features"]["predict"]
    assert written(tmp_path / "p", tokenized) == len(features)
    np.testing.assert_equal(read_records(tmp_path / "p"), expected_records(features, options.max_seq_length))
    for number, (window, expected) in enumerate(zip(tokenized.windows, features, strict=True)):
        assert expected.pop("unique_id") == FIRST_UNIQUE_ID + number
        assert expected.pop("start_position") is expected.pop("end_position") is None
        place = {"example_index": window.question_index, "doc_span_index": window.window_index}
        assert place | as_feature(tokenized, window) == expected


@pytest.mark.parametrize("name", NAMES)
def test_training_records_come_in_the_order_in_which_the_reference_shuffles_questions(name, tokenizer, tmp_path):
    case, options, path = golden(name)
    version_2 = name == "squad_v2"
    squad = read_squad(path, for_training=True, version_2=version_2)
    num_records = written(tmp_path / "t", TrainingWindows(squad, tokenizer, options, version_2))
    order = list(range(len(squad.questions)))
    random.Random(12345).shuffle(order)
    assert order != sorted(order)
    features = [each for index in order for each in case["features"]["train"] if each["example_index"] == index]
    assert num_records == len(features)
    expected = expected_records(features, options.max_seq_length, squad.questions)
    np.testing.assert_equal(read_records(tmp_path / "t"), expected)


def test_windows_are_those_of_the_plain_rules_for_any_options(vocab_file, tmp_path):
    vocab = load_vocab(vocab_file)
    words = [piece for piece in vocab if piece.isalpha()][:300] + HARD_WORDS * 10
    rng = random.Random(5)
    num_windows = 0
    for settings in [*SETTINGS.values()] * 3:
        tokenizer = FullTokenizer(vocab_file, **settings._asdict())
        max_query_length, max_tokens = rng.choice([1, 4, 10]), rng.choice([2, 7, 20, 60])
        # Strides are sometimes beyond what fits beside a question.
        flags = {"doc_stride": rng.randint(1, max_tokens + max_query_length - 2), "max_query_length": max_query_length}
        flags["max_seq_length"] = max_query_length + 3 + max_tokens
        content = random_content(rng, words)
        path = tmp_path / "squad.json"
        path.write_text(json.dumps(content))
        squad = read_squad(str(path), for_training=True, version_2=True)
        tokenized = TokenizedSquad(squad, tokenizer, WindowOptions(**flags))
        windows = list(tokenized.training_windows(range(len(squad.questions)), version_2=True))
        plain = list(plain_features(content, vocab, settings, **flags, for_training=True, version_2=True))
        for window, expected in zip(windows, plain, strict=True):
            feature = as_feature(tokenized, window)
            assert squad.questions[window.question_index].id == expected["id"]
            assert feature["tokens"] == expected["tokens"]
            assert list(feature["token_to_orig_map"].values()) == list(expected["word_of_position"].values())
            assert list(feature["token_is_max_context"].values()) == list(expected["is_max_context"].values())
            assert window.start_position == expected["start_position"]
            assert window.end_position == expected["end_position"]
            assert window.is_impossible == expected["is_impossible"]
            num_windows += 1
    assert num_windows > 1000


def test_the_context_of_pieces_is_compared_as_by_the_plain_rules_in_long_windows_too(tokenizer):
    # Length outweighs one piece at the poorer side only if windows differ by a hundred pieces.
    rng = random.Random(8)
    for _ in range(20):
        num_wordpieces, max_tokens = rng.randint(300, 900), rng.randint(120, 290)
        options = WindowOptions(max_tokens + 4, rng.randint(20, max_tokens - 1), 1)
        tokenized = TokenizedSquad(make_squad(("who", None, None), context="the " * num_wordpieces), tokenizer, options)
        windows = tokenized.windows
        spans = plain_spans(num_wordpieces, max_tokens, options.doc_stride)
        assert [(window.first, window.num_wordpieces) for window in windows] == spans
        for number, (window, (start, length)) in enumerate(zip(windows, spans, strict=True)):
            best = [plain_best_span(spans, place) == number for place in range(start, start + length)]
            assert tokenized.has_max_context(window).tolist() == best


def make_squad(*questions, context="one two three four five six seven eight nine ten " * 3):
    """Return a data set of questions (text, answer, start) about one context; without answer, one is impossible."""
    made = [
        Question(str(number), text, 0, (Answer(answer, start),) if answer else (), not answer)
        for number, (text, answer, start) in enumerate(questions)
    ]
    return SquadSet([context], made)


def test_windows_without_the_answer_can_be_left_out_or_made_impossible(tokenizer):
    squad = make_squad(("who", "two", 4), ("where", None, None))
    assert squad.contexts[0].startswith("two", 4)

    def windows(drop, version_2):
        options = WindowOptions(24, 6, 8, drop_out_of_window=drop)
        return list(TokenizedSquad(squad, tokenizer, options).training_windows([0, 1], version_2=version_2))

    kept = windows(drop=False, version_2=True)
    impossible = [window for window in kept if window.question_index == 1]
    outside = [window for window in kept if window.question_index == 0 and not window.start_position]
    inside = [window for window in kept if window.start_position]
    assert len(inside) == 1
    assert len(outside) > 2
    assert all(window.is_impossible for window in impossible)
    assert not any(window.is_impossible for window in outside + inside)
    assert windows(drop=True, version_2=False) == inside + impossible
    marked = [window._replace(is_impossible=True) for window in outside]
    assert windows(drop=True, version_2=True) == inside + marked + impossible


def test_offsets_take_the_pieces_under_the_answer_and_words_where_it_is_misplaced(tokenizer):
    assert tokenizer.tokenize("gardener") == ["g", "##ar", "##d", "##en", "##er"]
    assert tokenizer.tokenize("den") == ["den"]

    def positions(alignment, context, answer, start):
        squad = make_squad(("who", answer, start), context=context)
        tokenized = TokenizedSquad(squad, tokenizer, WindowOptions(24, 6, 8, answer_alignment=alignment))
        (window,) = tokenized.training_windows([0], version_2=False)
        return window.start_position - window.offset, window.end_position - window.offset

    assert positions("reference", "the gardener", "den", 7) == (1, 5)
    assert positions("offsets", "the gardener", "den", 7) == (3, 4)
    assert positions("offsets", "the gardener", "den", 6) == (1, 5)
    for alignment in ("reference", "offsets"):
        assert positions(alignment, "the menu", "menu", 4) == (1, 1)
        assert positions(alignment, " menu", " menu", 0) == (0, 0)


def test_an_empty_context_and_a_question_without_pieces_make_a_window(tokenizer, tmp_path):
    cls_id, sep_id = tokenizer.vocabulary.require("[CLS]", "[SEP]")
    for context in ("", " \n", "\u200b"):
        squad = make_squad(("", None, None), context=context)
        tokenized = TokenizedSquad(squad, tokenizer, OPTIONS)
        (window,) = tokenized.windows
        assert tokenized.join(window).input_ids == [cls_id, sep_id, sep_id]
        assert tokenized.has_max_context(window).shape == (0,)
        assert written(tmp_path / "p", tokenized) == 1
        with pytest.raises(UserError, match="there are no windows to train on; are the contexts empty"):
            written(tmp_path / "t", TrainingWindows(squad, tokenizer, OPTIONS, True))


def test_whatever_changes_records_changes_the_note_for_which_they_are_made_again(tokenizer):
    def note(question=("who", "two", 4), tokenizer=tokenizer, version_2=True, **options):
        squad = make_squad(question, ("where", None, None))
        options = WindowOptions(**{"max_seq_length": 24, "doc_stride": 6, "max_query_length": 8, **options})
        return json.dumps(TrainingWindows(squad, tokenizer, options, version_2).provenance(TRAINING_SCHEMA))

    changes = (
        *({"question": ("who", "two", 54)}, {"version_2": False}, {"max_seq_length": 25}),
        *({"answer_alignment": "offsets"}, {"drop_out_of_window": True}),
        {"tokenizer": FullTokenizer(tokenizer.vocabulary.source, do_lower_case=False)},
    )
    assert note() == note()
    assert len({note(), *(note(**change) for change in changes)}) == 1 + len(changes)


@pytest.mark.parametrize(
    ("lengths", "parts"),
    [
        ((67, 10, 64), ["max_query_length=64", "max_seq_length=67", "plus 3", "raise max_seq_length"]),
        ((40, 10, -1), ["max_query_length=-1 must be 0 or more"]),
        ((40, 0, 8), ["doc_stride=0 must be from 1 to 35"]),
        ((40, -5, 8), ["doc_stride=-5"]),
        ((40, 36, 8), ["doc_stride=36 must be from 1 to 35", "at most 36 wordpieces", "must overlap"]),
        ((128, 128, 64), ["must be from 1 to 123", "give doc_stride=30, half of what fits beside a long question"]),
    ],
)
def test_options_that_do_not_fit_are_refused(lengths, parts):
    with pytest.raises(UserError) as caught:
        WindowOptions(*lengths)
    for part in parts:
        assert part in str(caught.value)


def test_any_number_of_processes_gives_the_same(tokenizer, monkeypatch):
    texts = [f"In {number} Zoë met the 東京 crowd." * (number % 5) for number in range(300)]
    alone = tokenize_contexts(texts, tokenizer, answer_alignment="offsets")
    monkeypatch.setattr("official_bert.tasks.question_answering.data._CHARACTERS_WORTH_A_PROCESS", 1)
    together = tokenize_contexts(texts, tokenizer, answer_alignment="offsets", num_processes=2)
    np.testing.assert_equal(together, alone)
