"""`score_sentences`: scores compared with a loop over the definition."""

import json
import math

import numpy as np
import pytest
from keras import ops

from official_bert.checkpoints.bundle import write_checkpoint
from official_bert.inference.sentence_index import Sentence
from official_bert.inference.text_scores import TextScorer
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.tokenization import FullTokenizer
from tests.commands.conftest import arrays_of
from tests.conftest import prints_error, run_here

pytestmark = pytest.mark.slow

LINES = ["The town woke.", "", "townish harbours", "Marta left the town ||| the harbours woke", "\u200b", "town " * 40]
MAX_LENGTH = 24


@pytest.fixture(scope="module")
def model(one_layer_model):
    config_file = one_layer_model["bert_config_file"]
    return PretrainingModel.from_checkpoint(one_layer_model["init_checkpoint"], bert_config=config_file)


@pytest.fixture
def score(one_layer_model, tmp_path):
    """Score lines, and return the rows of the table."""

    def run(lines, **flags):
        (tmp_path / "texts.txt").write_text("\n".join(lines) + "\n")
        paths = {"input_file": tmp_path / "texts.txt", "output_file": tmp_path / "scores"}
        run_here("score_sentences", **{**one_layer_model, **paths, "max_seq_length": MAX_LENGTH, **flags})
        return [line.split("\t") for line in (tmp_path / "scores").read_text().splitlines()]

    return run


def masked_in_turn(model, tokenizer, text, *, masks_rest):
    """Return the wordpieces of a text with their log probabilities, each predicted in a copy where it is masked."""
    batch = tokenizer([tuple(text.split(" ||| ")) if "|||" in text else text], max_seq_length=MAX_LENGTH)
    ids = batch["input_ids"][0]
    tokens = tokenizer.convert_ids_to_tokens(ids)
    places = [place for place, token in enumerate(tokens) if token not in ("[CLS]", "[SEP]")]
    if not places:
        return []
    copies = {name: np.repeat(values, len(places), axis=0) for name, values in batch.items()}
    for copy, place in zip(copies["input_ids"], places, strict=True):
        copy[place] = tokenizer.mask_id
        while masks_rest and tokens[place + 1].startswith("##"):
            place += 1
            copy[place] = tokenizer.mask_id
    logits = model({**copies, "masked_lm_positions": np.array(places)[:, np.newaxis]})["masked_lm_logits"]
    scores = ops.convert_to_numpy(ops.log_softmax(logits))[np.arange(len(places)), 0, ids[places]]
    return [(tokens[place], float(score)) for place, score in zip(places, scores, strict=True)]


@pytest.mark.parametrize("masks_rest", [False, True])
def test_scores_are_those_of_the_definition(score, model, vocab_file, monkeypatch, masks_rest):
    monkeypatch.setattr("official_bert.inference.text_scores.POOLED_BATCHES", 4)  # several pools
    tokenizer = FullTokenizer(vocab_file)
    header, *rows = score(LINES, batch_size=2, by_word=True, mask_rest_of_word=masks_rest)
    assert header == ["line", "number", "word", "wordpieces", "pseudo_log_likelihood"]
    expected = []
    for line, text in enumerate(LINES, start=1):
        words = []
        for token, value in masked_in_turn(model, tokenizer, text, masks_rest=masks_rest):
            if token.startswith("##"):
                name, count, total = words.pop()
                words.append((name + token[2:], count + 1, total + value))
            else:
                words.append((token, 1, value))
        expected += [(line, number, *word) for number, word in enumerate(words, start=1)]
    assert {row[0] for row in rows} == {"1", "3", "4", "6"}
    assert max(int(row[3]) for row in rows) > 1
    assert [row[:2] + row[3:4] for row in rows] == [[str(line), str(n), str(size)] for line, n, _, size, _ in expected]
    assert [row[2].lower() for row in rows] == [word for _, _, word, _, _ in expected]
    assert [float(row[4]) for row in rows] == pytest.approx([value for *_, value in expected], abs=1e-4)

    texts = score(LINES, output_format="jsonl", mask_rest_of_word=masks_rest)
    for (row,), line in zip(texts, (1, 3, 4, 6), strict=True):
        text = json.loads(row)
        of_text = [row for row in expected if row[0] == line]
        total, count = sum(row[4] for row in of_text), sum(row[3] for row in of_text)
        assert (text["line"], text["wordpieces"], text["text"]) == (line, count, LINES[line - 1].strip())
        assert text["pseudo_log_likelihood"] == pytest.approx(total, abs=1e-3)
        assert text["pseudo_perplexity"] == pytest.approx(math.exp(-total / count), rel=1e-4)


def test_the_first_scores_come_before_all_texts_are_read(vocab_file):
    compute = {"compute": lambda sequences: np.zeros(len(sequences))}
    scorer = TextScorer(FullTokenizer(vocab_file), **compute, max_seq_length=MAX_LENGTH, batch_size=1)
    lines = iter(range(1, 1000))
    assert len(next(scorer.likelihoods(Sentence(line, ("the town woke", None)) for line in lines)).words) == 3
    assert next(lines, 1000) < 100


def test_pairs_have_the_probability_of_the_next_sentence_head(score, model, vocab_file):
    pairs = [("the town woke", "marta left"), ("marta left", "the town"), ("the " * 30, "town")]
    header, *rows = score([" ||| ".join(pair) for pair in pairs] + ["", "a ||| \u200b"], score="next_sentence")
    assert header == ["line", "probability", "text_a", "text_b"]
    batch = FullTokenizer(vocab_file)(pairs, max_seq_length=MAX_LENGTH)
    logits = model({**batch, "masked_lm_positions": np.zeros((3, 1), np.int32)})["next_sentence_logits"]
    expected = ops.convert_to_numpy(ops.softmax(logits))[:, 0]
    assert [float(row[1]) for row in rows] == pytest.approx(expected.tolist(), abs=1e-5)
    assert [(row[0], *row[2:]) for row in rows] == [
        (str(line), first.strip(), second) for line, (first, second) in enumerate(pairs, start=1)
    ]


def test_mistakes_are_one_message(score, tmp_path):
    for lines, flags, message in (
        (["", "\u200b"], {}, "texts.txt has no words"),
        (["a ||| b", "a"], {"score": "next_sentence"}, r"text 2 is not a pair; write `text \|\|\| text`"),
        (["a"], {"score": "next_sentence", "by_word": True}, "--by_word needs --score=pseudo_log_likelihood"),
    ):
        with prints_error(message):
            score(lines, **flags)
        assert not (tmp_path / "scores").exists()


@pytest.mark.parametrize(
    ("head", "flag"), [("predictions", "pseudo_log_likelihood"), ("seq_relationship", "next_sentence")]
)
def test_only_the_head_of_the_score_is_needed(score, one_layer_model, tmp_path, head, flag):
    arrays = arrays_of(one_layer_model["init_checkpoint"])
    for name, heads in (("with", (head,)), ("without", {"predictions", "seq_relationship"} - {head})):
        kept = ("bert/", *(f"cls/{head}" for head in heads))
        write_checkpoint(str(tmp_path / name), {name: arrays[name] for name in arrays if name.startswith(kept)})
    with prints_error(f"without lacks .*cls/{head}"):
        score(["a ||| b"], score=flag, init_checkpoint=str(tmp_path / "without"))
    score(["a ||| b"], score=flag, init_checkpoint=str(tmp_path / "with"))
