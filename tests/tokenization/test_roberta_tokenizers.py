"""The tokenizers of RoBERTa, XLM-RoBERTa and CamemBERT, compared with goldens of `transformers`."""

import json
import pathlib
import pickle
import random
import shutil
import unicodedata

import numpy as np
import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from official_bert.families.bert import CamembertConfig, RobertaConfig
from official_bert.families.family import load_family
from official_bert.inference.predictor import Predictor
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.serving.exports import write_export
from official_bert.support.errors import UserError
from official_bert.tasks.pretraining.servable import PretrainingServable
from official_bert.tokenization import FullTokenizer, hf_tokenizer, load_tokenizer, read_vocabulary_file
from official_bert.tokenization.sentencepiece_tokenizer import CamembertTokenizer, DebertaTokenizer, XlmRobertaTokenizer
from official_bert.tokenization.tokenizer_files import content_of_copy, kind_of_file
from tests.exports import graph_predictor
from tests.tokenization.bpe_models import modernbert_json
from tests.tokenization.sentencepiece_models import (
    FAIRSEQ,
    as_tokenizer_json,
    assert_graph_is_the_same,
    normalizer_of,
    random_texts,
    write_model,
)

pytestmark = pytest.mark.slow

BPE = pathlib.Path(__file__).parents[1] / "golden" / "families" / "roberta" / "tokenizer"


@pytest.fixture(scope="module")
def bpe():
    pytest.importorskip("tokenizers")
    return load_tokenizer(BPE)


@pytest.fixture(scope="module")
def expected():
    return json.loads((BPE / "expected.json").read_text())


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """Map classes to SentencePiece models with their own normalization rules, and the tokenizers of these."""
    folder, other = (tmp_path_factory.mktemp(name) for name in ("fairseq", "deberta"))
    path, own = write_model(folder / "sentencepiece.bpe.model", **FAIRSEQ), write_model(other / "spm.model", "deberta")
    xlm_roberta = load_tokenizer(folder)
    (folder / "config.json").write_text('{"model_type": "camembert"}')
    return {
        XlmRobertaTokenizer: (path, xlm_roberta),
        CamembertTokenizer: (path, load_tokenizer(folder)),
        DebertaTokenizer: (own, load_tokenizer(other)),
    }


def test_bpe_gives_the_ids_and_places_of_transformers(bpe, expected):
    for text, ids, offsets in zip(expected["texts"], expected["ids"], expected["offsets"], strict=True):
        encoding = bpe.encode_with_offsets(text)
        assert bpe.encode(text) == encoding.ids == ids, text
        assert bpe.encode(text.encode()) == ids
        for start, end, place in zip(encoding.starts, encoding.ends, offsets, strict=True):
            # transformers has an empty range for white space.
            assert [start, end] == place or not text[start:end].strip(), text
            assert 0 <= start < end <= len(text)
        assert encoding.starts == sorted(encoding.starts) and encoding.ends == sorted(encoding.ends)
    first, second = expected["pair"]
    batch = bpe([(first, second), first], max_seq_length=64)
    ids = expected["pair_ids"]
    assert batch["input_ids"][0].tolist() == ids and not batch["segment_ids"].any()
    assert batch["input_ids"][1].tolist() == (ids[: ids.index(bpe.sep_id) + 1] + [bpe.pad_id] * 64)[: len(ids)]
    assert bpe.decode(ids) == first + second and "<s>" in bpe.decode(ids, skip_special_tokens=False)
    assert bpe.encode("a\ud800b") == bpe.encode("ab") and bpe.encode_with_offsets("a\ud800b").ends[-1] == 3
    assert_graph_is_the_same(bpe, expected["texts"][:60])


def test_bpe_finds_masks_as_transformers_does(bpe, expected):
    text, ids = expected["masked"], expected["masked_ids"]
    parts = [bpe.encode(part) for part in bpe.mask_pattern.split(text.replace("<mask>", "[MASK]", 1))]
    assert [bpe.cls_id, *parts[0], bpe.mask_id, *parts[1], bpe.mask_id, *parts[2], bpe.sep_id] == ids
    special = {bpe.cls_id, bpe.sep_id, bpe.pad_id, bpe.unk_id, bpe.mask_id}
    assert special.isdisjoint(bpe.encode("the </s> <s> <pad> <unk> <mask> smith"))  # spelled out, they are plain text
    assert not bpe.vocabulary.marks_first_word


def test_a_bpe_is_the_same_from_either_file_and_in_another_process(bpe, expected, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(bpe.vocabulary.file_content)
    copies = load_tokenizer(tmp_path), pickle.loads(pickle.dumps(bpe))
    for copy in copies:
        assert copy.identity == bpe.identity and copy.encode(expected["texts"][-1]) == expected["ids"][-1]
    assert copies[0].vocabulary.file_content == bpe.vocabulary.file_content
    from tokenizers import Tokenizer

    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert theirs.encode(*expected["pair"]).ids == expected["pair_ids"]
    assert theirs.encode(expected["masked"]).ids == expected["masked_ids"]
    pieces = json.loads((BPE / "vocab.json").read_text())
    (tmp_path / "older").mkdir()
    shutil.copy(BPE / "merges.txt", tmp_path / "older")
    pieces["model"] = len(pieces)  # RoBERTa's vocabulary contains this word
    (tmp_path / "older" / "vocab.json").write_text(json.dumps(pieces))
    assert load_tokenizer(tmp_path / "older").encode(expected["texts"][-1]) == expected["ids"][-1]
    assert not bpe.vocabulary.continues_word("\u0120the") and bpe.vocabulary.continues_word("ing")


def test_bad_bpe_files_are_named(bpe, tmp_path):
    shutil.copy(BPE / "vocab.json", tmp_path)
    values = json.loads(bpe.vocabulary.file_content)
    values["model"]["merges"][0] = ["a", "nothing"]
    cases = (
        ("vocab.json", None, "merges.txt, which is missing"),
        ("bpe.json", values, r"\['a', 'nothing'\] is not a merge"),
        ("tokenizer.json", {"model": {"type": "Unigram"}}, "has no model.vocab"),
        ("tokenizer.json", as_tokenizer_json([["<pad>", 0.0], ["<unk>", 0.0]]), "put the SentencePiece model"),
        ("tokenizer.json", as_tokenizer_json([["<s>", 0.0]], {"type": "Lowercase"}), "unlike those of ALBERT"),
    )
    for name, content, message in cases:
        if content is not None:
            (tmp_path / name).write_text(json.dumps(content))
        with pytest.raises(UserError, match=message) as caught:
            read_vocabulary_file(str(tmp_path / name))
        assert name in str(caught.value)
    with pytest.raises(UserError, match="basic_tokenize=false, but .* takes text as it is; give basic_tokenize=true"):
        load_tokenizer(BPE, basic_tokenize=False)
    folder = shutil.copytree(BPE, tmp_path / "other")
    for name, content, message in (
        ("sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case is true .* its tokenizer takes text as"),
        ("tokenizer_config.json", {"tokenizer_class": "CLIPTokenizer"}, "tokenizer_class is 'CLIPTokenizer'"),
    ):
        (folder / name).write_text(json.dumps(content))
        with pytest.raises(UserError, match=message):
            load_tokenizer(folder)
    assert kind_of_file(str(tmp_path / "vocab.txt")) is FullTokenizer


def changed(values, path, value):
    """Return a copy of JSON values with one value replaced, given its place: `model.dropout`."""
    first, _, rest = path.partition(".")
    return {**values, first: changed(values[first], rest, value) if rest else value}


PARTS = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
TEMPLATE = {"type": "TemplateProcessing", "single": PARTS}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        ("normalizer", {"type": "Sequence", "normalizers": [{"type": "Lowercase"}]}, "normalizer.normalizers[0].type"),
        ("pre_tokenizer", {"type": "Whitespace"}, "pre_tokenizer.type"),
        ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [BYTES]}, "pre_tokenizer.pretokenizers[0].use_regex"),
        ("pre_tokenizer", None, "has no pre_tokenizer"),
        ("model.ignore_merges", True, "model.ignore_merges"),
        ("model.vocab", ["a"], "model.vocab is ['a']"),
        ("model.merges", [5], "5 is not a merge"),
        ("post_processor", BYTES, "post_processor has 0 steps"),
        ("post_processor.sep", ["</s>", 3], "post_processor.sep"),
        ("post_processor", TEMPLATE, "post_processor.single"),
        ("post_processor.type", "BertProcessing", "post_processor.type"),
        ("added_tokens", [{"content": "<s>", "id": 3}], "the added token '<s>' has another id"),
        ("added_tokens", [{"content": "<e>"}], "ids must be distinct"),
    ],
)
def test_what_a_bpe_tokenizer_does_otherwise_is_named(bpe, tmp_path, place, value, named):
    values = json.loads(bpe.vocabulary.file_content)
    (tmp_path / "tokenizer.json").write_text(json.dumps(changed(values, place, value)))
    with pytest.raises(UserError) as caught:
        load_tokenizer(tmp_path)
    assert "tokenizer.json" in str(caught.value) and named in str(caught.value)


def test_tokens_added_to_a_bpe_are_those_of_tokenizers(bpe, expected, tmp_path):
    from tokenizers import Tokenizer

    values, size = json.loads(bpe.vocabulary.file_content), len(bpe)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    added = [
        {**flags, "id": size, "content": "<e1>", "special": True},
        {**flags, "id": size + 1, "content": "new word", "lstrip": True},
        {**flags, "id": size + 2, "content": "smit", "single_word": True, "rstrip": True},
        {**flags, "id": bpe.vocab["ing"], "content": "ing"},
    ]
    template = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    processors = [template, hf_tokenizer.template_of(
        ("<s>", bpe.cls_id), ("</s>", bpe.sep_id), num_between=2, second_segment=0)]  # fmt: skip
    values["post_processor"] = {"type": "Sequence", "processors": processors}
    values["added_tokens"] += added
    (mask,) = (token for token in values["added_tokens"] if token["content"] == "<mask>")
    mask["lstrip"] = False
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    theirs, tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json")), load_tokenizer(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "bpe.json").write_bytes(tokenizer.vocabulary.file_content)
    copy = load_tokenizer(tmp_path / "run")
    assert mask in json.loads(copy.vocabulary.file_content)["added_tokens"]
    assert [tokenizer.mask_pattern.split("a <mask>")[0] for tokenizer in (copy, bpe)] == ["a ", "a"]
    # Older folders say it in other files.
    (tmp_path / "older").mkdir()
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(BPE / name, tmp_path / "older")
    (tmp_path / "older" / "added_tokens.json").write_text(json.dumps({"<e1>": size, "smit": size + 2}))
    decoder = {str(token["id"]): {key: token[key] for key in token if key != "id"} for token in added[1:]}
    (tmp_path / "older" / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder}))
    older = load_tokenizer(tmp_path / "older")
    texts = ["<e1>the <e1> smith", " a new word  new words", "smit  x smith smit", "singing\u00e9ing"]
    texts += expected["texts"]
    assert tokenizer.encode_word("<e1>") == [size] and tokenizer.decode([size]) == "<e1>"
    assert len(tokenizer) == size + 3 and copy.identity == tokenizer.identity != bpe.identity
    for text in texts:
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text) == copy.encode(text) == older.encode(text) == ids, text
        assert tokenizer.encode_with_offsets(text).ids == ids
    assert tokenizer([("the <e1>", "smith")])["input_ids"][0].tolist() == theirs.encode("the <e1>", "smith").ids


def test_the_ids_of_a_modernbert_are_those_of_tokenizers(expected, tmp_path):
    from tokenizers import Tokenizer

    path = tmp_path / "tokenizer.json"
    path.write_bytes(modernbert_json())
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    theirs, tokenizer = Tokenizer.from_file(str(path)), load_tokenizer(tmp_path)
    values = json.loads(tokenizer.vocabulary.file_content)
    path.write_text(json.dumps(values))
    settings = tokenizer.to_hugging_face(load_family("modernbert"), 64)
    assert (settings["tokenizer_class"], settings["pad_token"]) == ("PreTrainedTokenizerFast", "[PAD]")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert load_tokenizer(tmp_path).identity == tokenizer.identity
    written = Tokenizer.from_file(str(path))
    texts = ["cafe\u0301s  of\u00a0   the\n\n      \t  smith", "<|endoftext|>a |||IP_ADDRESS||| [unused0]", "  two"]
    texts += [unicodedata.normalize("NFD", text) for text in expected["texts"]] + expected["texts"]
    for text in [*texts, *random_texts(random.Random(4), 200)]:
        ids = theirs.encode(text, add_special_tokens=False).ids
        encoding = tokenizer.encode_with_offsets(text)
        assert tokenizer.encode(text) == encoding.ids == written.encode(text, add_special_tokens=False).ids == ids, text
        assert all(0 <= start < end <= len(text) for start, end in zip(encoding.starts, encoding.ends, strict=True))
        assert tokenizer.decode(ids) == theirs.decode(ids, skip_special_tokens=False).strip(" ") or "|" in text, text
    pair, joined = tokenizer([("the smith", " iron")]), theirs.encode("the smith", " iron")
    assert [pair[name][0].tolist() for name in ("input_ids", "segment_ids")] == [joined.ids, joined.type_ids]
    masked = [tokenizer.encode(part) for part in tokenizer.mask_pattern.split("the [MASK] iron")]
    assert theirs.encode("the [MASK] iron").ids[1:-1] == [*masked[0], tokenizer.mask_id, *masked[1]]
    assert tokenizer.mask_id not in tokenizer.encode("the [MASK] iron")  # spelled out, it is plain text
    for part in values["post_processor"]["pair"][3:]:
        next(iter(part.values()))["type_id"] = 0  # segments have no effect
    path.write_text(json.dumps(values))
    assert load_tokenizer(tmp_path).identity == tokenizer.identity


@pytest.mark.parametrize(
    ("kind", "shift", "specials"),  # how much the ids exceed the numbers of pieces; results of transformers 4
    [
        (XlmRobertaTokenizer, 1, [0, 2, 1, 3]),
        (CamembertTokenizer, 4, [5, 6, 1, 3]),
        (DebertaTokenizer, 0, [1, 2, 0, 3]),
    ],
)
def test_ids_are_those_of_transformers_in_python_and_in_the_graph(pieces, kind, shift, specials):
    path, tokenizer = pieces[kind]
    assert type(tokenizer) is kind
    processor = sentencepiece.SentencePieceProcessor(model_file=path)
    assert [tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.unk_id] == specials
    assert tokenizer.mask_id == processor.get_piece_size() + shift == len(tokenizer) - 1
    texts = list(random_texts(random.Random(4), 200))
    for text in texts:
        numbers = map(processor.piece_to_id, processor.encode(text, out_type=str))
        expected = [number + shift if number else tokenizer.unk_id for number in numbers]
        encoding = tokenizer.encode_with_offsets(text)
        assert tokenizer.encode(text) == encoding.ids == expected, text
        assert all(0 <= start < end <= len(text) for start, end in zip(encoding.starts, encoding.ends, strict=True))
    assert_graph_is_the_same(tokenizer, texts[:80])
    pair, (first, second) = tokenizer([("the smith", "iron")]), map(tokenizer.encode, ("the smith", "iron"))
    (cls_id, sep_id), ids = specials[:2], pair["input_ids"][0].tolist()
    assert ids == [cls_id, *first, sep_id, *([sep_id] if shift else []), *second, sep_id]
    second_segment = [0] * (len(second) + 2) if shift else [1] * (len(second) + 1)
    assert pair["segment_ids"][0].tolist() == [0] * (len(first) + 2) + second_segment
    assert tokenizer.decode(ids) == "the smith iron"
    assert tokenizer.encode("smi\ud800th") == tokenizer.encode("smith")
    assert pickle.loads(pickle.dumps(tokenizer)).encode("the smith") == first


@pytest.mark.parametrize("kind", [XlmRobertaTokenizer, CamembertTokenizer])
def test_a_tokenizer_json_is_written_and_read(pieces, kind, tmp_path):
    path, tokenizer = pieces[kind]
    texts = list(random_texts(random.Random(4), 200))
    tokenizers = pytest.importorskip("tokenizers")
    (tmp_path / "ours.json").write_text(json.dumps(tokenizer.to_tokenizer_json()))
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "ours.json"))
    for text in texts:
        if not any(map(unicodedata.combining, text)):  # tokenizers loses some of these
            assert theirs.encode(text, add_special_tokens=False).ids == tokenizer.encode(text), text
    assert theirs.encode("the smith", "iron").ids == tokenizer([("the smith", "iron")])["input_ids"][0].tolist()
    # A tokenizer.json made from the model, the only file that transformers 5 keeps.
    proto = sentencepiece_model_pb2.ModelProto.FromString(pathlib.Path(path).read_bytes())
    vocabulary = kind.vocabulary_class
    following = [[piece.piece, piece.score] for piece in proto.pieces[len(vocabulary.own_pieces) :]]
    all_pieces = [*([token, 0.0] for token in vocabulary.specials_first), *following, ["<mask>", 0.0]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(as_tokenizer_json(all_pieces, normalizer_of(proto))))
    again = load_tokenizer(tmp_path)
    assert type(again) is kind and again.vocabulary.token_to_id == tokenizer.vocabulary.token_to_id
    assert [again.encode(text) for text in texts] == [tokenizer.encode(text) for text in texts]
    (tmp_path / vocabulary.file_name).write_bytes(content_of_copy(str(tmp_path / "tokenizer.json")))
    assert load_tokenizer(tmp_path).identity == again.identity


def test_a_deberta_that_splits_at_punctuation_is_refused(pieces, tmp_path):
    path, tokenizer = pieces[DebertaTokenizer]
    shutil.copy(path, tmp_path)
    assert load_tokenizer(tmp_path).identity == tokenizer.identity
    (tmp_path / "tokenizer_config.json").write_text('{"split_by_punct": true}')
    with pytest.raises(UserError, match=r"spm\.model: split_by_punct is True, which is not supported"):
        load_tokenizer(tmp_path)


@pytest.mark.endurance
def test_an_export_with_a_sentencepiece_model_finds_masks(pieces, tmp_path):
    _, tokenizer = pieces[CamembertTokenizer]
    config = CamembertConfig(len(tokenizer), 8, 1, 2, 12, max_position_embeddings=20, type_vocab_size=1)
    servable = PretrainingServable(PretrainingModel(BertEncoder(config)), config, tokenizer, max_seq_length=18, top_k=3)
    write_export(str(tmp_path / "export"), servable)
    texts = ["the <mask> iron", "a [MASK]"]
    for found, expected in zip(Predictor(tmp_path / "export")(texts), graph_predictor(servable)(texts), strict=True):
        assert [word.word for word in found[0]] == [word.word for word in expected[0]]
        probabilities = [[word.probability for word in words[0]] for words in (found, expected)]
        assert probabilities[0] == pytest.approx(probabilities[1], abs=1e-6)


@pytest.mark.endurance
def test_a_model_with_a_bpe_exports_signatures_for_ids_and_has_one_segment(bpe, expected):
    config = RobertaConfig(len(bpe), 8, 1, 2, 12, max_position_embeddings=20, type_vocab_size=1)
    model = PretrainingModel(BertEncoder(config))
    servable = PretrainingServable(model, config, bpe, max_seq_length=18, top_k=len(bpe))
    assert list(servable.signatures()) == ["serving_default", "serving_int64", "examples"]
    # Segments of pairs, which KLUE's RoBERTa gets from BERT's tokenizer, count as one.
    ids = np.array([expected["masked_ids"]])
    vectors = [model.encoder({"input_ids": ids, "segment_ids": ids * 0 + segment}) for segment in (0, 1)]
    np.testing.assert_array_equal(*(vector["sequence_output"] for vector in vectors))
