"""`SentencePieceTokenizer` and its TensorFlow version, compared with a plain form of ALBERT's rules."""

import functools
import json
import pickle
import random
import shutil
import unicodedata

import numpy as np
import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from official_bert.families.bert import BERT_FAMILY
from official_bert.support.errors import UserError
from official_bert.tokenization import FullTokenizer, SentencePieceTokenizer, load_tokenizer
from official_bert.tokenization.hf_tokenizer import KOBERT_FILE
from official_bert.tokenization.sentencepiece_tokenizer import SentencePieceVocabulary, decompose
from tests.conftest import endurance
from tests.tokenization.sentencepiece_models import (
    SPACES,
    as_tokenizer_json,
    assert_graph_is_the_same,
    normalizer_of,
    random_texts,
    write_model,
)

pytestmark = pytest.mark.slow

SPACE = "\u2581"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return functools.cache(lambda variant: write_model(folder / variant, variant))


@pytest.fixture(scope="module")
def tokenizer(models):
    return SentencePieceTokenizer(models("albert"))


def assert_refused(make, *parts):
    with pytest.raises(UserError) as caught:
        make()
    assert all(part in str(caught.value) for part in parts), str(caught.value)


def plainly_prepared(text, lower, variant="albert"):
    """Normalize text like ALBERT's `preprocess_text`, or like XLNet's, which is KoBERT's."""
    text = " ".join(text.split())
    if variant == "kobert":
        text = text.replace("``", '"').replace("''", '"')
    text = unicodedata.normalize("NFKD", text)
    text = "".join(character for character in text if not unicodedata.combining(character))
    return text.lower() if lower else text


def plain_ids(processor, text):
    """Encode text like ALBERT's `encode_ids`."""
    pieces = []
    for piece in processor.encode(text, out_type=str):
        if len(piece) < 2 or piece[-1] != "," or not piece[-2].isdigit():
            pieces.append(piece)
            continue
        parts = processor.encode(piece[:-1].replace(SPACE, ""), out_type=str)
        if piece[0] != SPACE and parts[0][0] == SPACE:
            if parts[0] == SPACE:
                del parts[0]
            else:
                parts[0] = parts[0][1:]
        pieces += [*parts, ","]
    return [processor.piece_to_id(piece) for piece in pieces]


@pytest.mark.parametrize(
    ("variant", "lower"),
    [
        ("kobert", False),
        ("bpe", True),
        *endurance(*((variant, True) for variant in ("albert", "spaces_kept", "space_behind", "no_first_space"))),
    ],
)
def test_ids_and_places_are_those_of_the_plain_rules_in_python_and_in_the_graph(models, variant, lower):
    tokenizer = SentencePieceTokenizer(models(variant), lower)
    processor = sentencepiece.SentencePieceProcessor(model_file=models(variant))
    texts, num_split, num_ids = ["'''값'''' ``2,``", *random_texts(random.Random(len(variant)), 120)], 0, 0
    for text in texts:
        expected = plain_ids(processor, plainly_prepared(text, lower, variant))
        encoding = tokenizer.encode_with_offsets(text)
        assert tokenizer.encode(text) == encoding.ids == expected, text
        assert all(0 <= start < end <= len(text) for start, end in zip(encoding.starts, encoding.ends, strict=True))
        assert encoding.starts == sorted(encoding.starts) and encoding.ends == sorted(encoding.ends), text
        prepared = processor.encode(plainly_prepared(text, lower, variant))
        num_split += not tokenizer.parts_of_piece.keys().isdisjoint(prepared)
        num_ids += len(expected)
    assert num_split > 10 or variant == "space_behind"
    beginnings = assert_graph_is_the_same(tokenizer, texts)
    assert sum(map(len, beginnings)) < 2 * num_ids or variant not in ("albert", "bpe")


def test_places_hold_what_a_piece_was_made_from(tokenizer):
    text = "The  cafe\u0301s  sold 2,000, ﬁsh."
    encoding = tokenizer.encode_with_offsets(text)
    tokens = tokenizer.convert_ids_to_tokens(encoding.ids)
    found = [text[start:end] for start, end in zip(encoding.starts, encoding.ends, strict=True)]
    assert (tokens[0], found[0]) == ("▁the", "The")
    assert "e\u0301" in "".join(found) and " " not in found[0]
    assert found[tokens.index(",")] == ","
    whole = "".join(dict.fromkeys(found))  # pieces of one ligature share it, a piece of the mark alone its letter
    assert "ﬁ" in whole
    # Lone surrogates are dropped.
    assert tokenizer.encode("smi\ud800th") == tokenizer.encode("smith")
    assert tokenizer.encode_with_offsets("a\ud800b").ids == tokenizer.encode("ab")


def test_batches_and_text_back(tokenizer):
    batch = tokenizer(["the smith", ("the smith", "iron")], max_seq_length=16)
    cls_id, sep_id = tokenizer.vocab["[CLS]"], tokenizer.vocab["[SEP]"]
    first, second = tokenizer.encode("the smith"), tokenizer.encode("iron")
    pair = [cls_id, *first, sep_id, *second, sep_id]
    assert batch["input_ids"][1].tolist() == pair
    assert batch["input_ids"][0].tolist() == [cls_id, *first, sep_id] + [0] * (len(pair) - len(first) - 2)
    assert tokenizer.decode(pair) == "the smith iron"
    assert tokenizer.decode(pair, skip_special_tokens=False) == "[CLS] the smith [SEP] iron [SEP]"
    assert (tokenizer.pad_id, tokenizer.unk_id) == (0, 1)
    # Special tokens spelled out in a text are plain text.
    assert cls_id not in tokenizer.encode("[CLS] <pad>") and tokenizer.pad_id not in tokenizer.encode("[CLS] <pad>")


def test_kobert_has_special_tokens_of_its_own(models, tmp_path):
    shutil.copy(models("kobert"), tmp_path / KOBERT_FILE)
    tokenizer = load_tokenizer(tmp_path, do_lower_case=False)
    ids, pieces = tokenizer.vocab, tokenizer.inv_vocab.values()
    assert [ids[name] for name in ("[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]")] == [0, 1, 2, 3, 4]
    batch = tokenizer(["the", ("한국어", "the smith")])
    assert batch["input_ids"].tolist()[0][:4] == [2, ids["▁the"], 3, 1] and batch["segment_ids"].max() == 1
    assert [tokenizer.vocabulary.continues_word(token) for token in ("▁한", "국어", ".", "[UNK]")] == [0, 1, 1, 0]
    assert tokenizer.to_hugging_face(BERT_FAMILY, 512)["tokenizer_class"] == "PreTrainedTokenizerFast"
    encoding = tokenizer.encode_with_offsets("''")
    assert (encoding.starts[-1], encoding.ends[-1], encoding.ids[-1]) == (0, 2, ids['"'])
    (tmp_path / "vocab.txt").write_text("\n".join([*pieces][::-1]))
    assert_refused(lambda: load_tokenizer(tmp_path), "vocab.txt does not list the pieces of the tokenizer_78b")
    (tmp_path / KOBERT_FILE).unlink()
    assert_refused(lambda: load_tokenizer(tmp_path), "the vocabulary has pieces of SentencePiece", "spiece.model")
    (tmp_path / "vocab.txt").unlink()
    shutil.copy(models("albert"), tmp_path / "spiece.model")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "XLNetTokenizer"}')
    assert_refused(lambda: load_tokenizer(tmp_path), "tokenizer_class is 'XLNetTokenizer'")


def test_the_fingerprint_is_of_the_whole_model_and_equal_in_another_process(tokenizer, models, tmp_path):
    content = bytearray(open(models("albert"), "rb").read())
    piece = "▁the".encode() + b"\x15"  # followed by the four bytes of its score
    content[content.index(piece) + len(piece)] ^= 1
    (tmp_path / "other.model").write_bytes(content)
    other = SentencePieceVocabulary.from_file(str(tmp_path / "other.model"))
    assert other.token_to_id == tokenizer.vocabulary.token_to_id
    assert other.fingerprint != tokenizer.vocabulary.fingerprint
    for copy in (SentencePieceTokenizer(models("albert")), pickle.loads(pickle.dumps(tokenizer))):
        assert copy.identity == tokenizer.identity and copy.vocabulary.source == tokenizer.vocabulary.source
        assert copy.encode("The smith, 2,000, é") == tokenizer.encode("The smith, 2,000, é")


def test_words_begin_where_albert_says(tokenizer):
    for token in ("▁the", ",", "€", ",000", "'s", "한", "[CLS]", "<unk>"):
        assert not tokenizer.vocabulary.continues_word(token), token
    for token in ("ing", "a-b", "Ab"):
        assert tokenizer.vocabulary.continues_word(token), token


def test_decomposed_characters_have_one_lowercase_letter_and_no_other_space_than_u0020():
    for code in (*range(0x20000), *range(0x2F800, 0x2FA20), *range(0xE0000, 0xE0200)):  # the others are not decomposed
        for part in decompose(chr(code)):
            assert len(part.lower()) == 1
            assert part == " " or not part.isspace() or chr(code).isspace(), hex(code)


def test_a_folder_says_which_tokenizer_it_has(models, vocab_file, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "spiece.model").write_bytes(open(models("albert"), "rb").read())
    assert load_tokenizer(folder).settings.do_lower_case  # the vocabulary has no capital letters
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false, "keep_accents": false}')
    assert not load_tokenizer(folder).settings.do_lower_case
    assert isinstance(load_tokenizer(folder, do_lower_case=True), SentencePieceTokenizer)
    assert_refused(lambda: load_tokenizer(folder, strip_accents=False), "strip_accents")
    assert_refused(lambda: FullTokenizer.from_folder(folder), "spiece.model", "load_tokenizer")
    (folder / "vocab.txt").write_bytes(open(vocab_file, "rb").read())
    assert isinstance(load_tokenizer(folder, do_lower_case=True), FullTokenizer)
    # A tokenizer.json made from the model, the only file that transformers 5 keeps.
    only, tokenizer = tmp_path / "only", SentencePieceTokenizer(models("albert"))
    only.mkdir()
    content = unigram_content(models, "Replace", "NFKD", "StripAccents", "Lowercase")
    (only / "tokenizer.json").write_text(json.dumps(content))
    again = load_tokenizer(only)
    assert type(again) is SentencePieceTokenizer and again.vocabulary.token_to_id == tokenizer.vocabulary.token_to_id
    for text in ["(2,000) -. the smith", *random_texts(random.Random(2), 100)]:
        assert again.encode(text) == tokenizer.encode(text), text


@pytest.mark.parametrize("variant", ["albert", "kobert"])
def test_the_tokenizer_json_that_is_written_gives_our_ids(models, tmp_path, variant):
    tokenizers = pytest.importorskip("tokenizers")
    assert SentencePieceTokenizer(models("albert")).to_tokenizer_json() is None  # it splits pieces such as "2,"
    model = proto_of(models, variant)
    kept = [piece for piece in model.pieces if not piece.piece[1:].endswith(",")]
    model = sentencepiece_model_pb2.ModelProto(pieces=kept, normalizer_spec=model.normalizer_spec)
    path = tmp_path / "spiece.model"
    path.write_bytes(model.SerializeToString())
    for lower in (True, False):
        tokenizer = SentencePieceTokenizer(path, lower)
        (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer.to_tokenizer_json()))
        theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        for text in ["`` '' (2,000) fly.Σ ΑΣ Σα.", *random_texts(random.Random(3), 300)]:
            if "[CLS]" not in text:
                assert theirs.encode(text, add_special_tokens=False).ids == tokenizer.encode(text), text
        pair, batch = theirs.encode("the smith", "iron"), tokenizer([("the smith", "iron")])
        assert batch["input_ids"][0].tolist() == pair.ids and batch["segment_ids"][0].tolist() == pair.type_ids
    assert load_tokenizer(tmp_path, do_lower_case=True).identity == SentencePieceTokenizer(path).identity
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<e1>": len(tokenizer)}))
    assert_refused(lambda: load_tokenizer(tmp_path), "the added token '<e1>' with the id", "spiece.model")


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        ("model.unk_id", 3, "model.unk_id"),
        ("model.vocab", [["a", "b"]], "model.vocab must be a list"),
        ("normalizer", {"type": "NFC"}, "normalizer.type is 'NFC'"),
        ("normalizer", {"type": "Sequence", "normalizers": [SPACES, {"type": "NFKD"}]}, "normalizer.normalizers[1]"),
        ("normalizer", {**SPACES, "content": "x"}, "normalizer.content"),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "*"}, "precompiled_charsmap"),
        ("normalizer", {"type": "NFKD"}, "unlike those of ALBERT"),  # accents would be kept
        ("pre_tokenizer", {"type": "Metaspace", "replacement": "_"}, "pre_tokenizer.replacement"),
        ("pre_tokenizer", None, "does not treat spaces"),
        ("post_processor", {"type": "RobertaProcessing", "sep": ["[SEP]", 3]}, "post_processor.type"),
        ("added_tokens", [{"id": 5, "content": "("}], "the added token '('"),
        ("added_tokens", [{"id": 9, "content": "[SEP]"}], "the added token '[SEP]'"),
    ],
)
def test_what_a_unigram_tokenizer_does_otherwise_is_named(models, tmp_path, place, value, named):
    content = unigram_content(models)
    part, _, key = place.partition(".")
    content[part] = {**content[part], key: value} if key else value
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert_refused(lambda: load_tokenizer(tmp_path), "tokenizer.json", named)


def test_folders_of_other_sentencepiece_tokenizers_are_refused(models, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(unigram_content(models)))
    assert not load_tokenizer(tmp_path).settings.do_lower_case  # its normalizer does not lowercase
    for name, values, named in (
        ("tokenizer_config.json", {"tokenizer_class": "T5TokenizerFast"}, "tokenizer_class is 'T5TokenizerFast'"),
        ("tokenizer_config.json", {"keep_accents": True}, "keep_accents is true"),
        ("special_tokens_map.json", {"cls_token": {"a": 5}}, "has no cls_token.content"),
        ("config.json", {"tokenizer_class": ["T5"]}, "tokenizer_class is ['T5']"),
    ):
        (tmp_path / name).write_text(json.dumps(values))
        assert_refused(lambda: load_tokenizer(tmp_path), named)
        (tmp_path / name).unlink()


def unigram_content(models, *steps):
    """Return a `tokenizer.json` of an ALBERT, cased unless the steps say otherwise."""
    model = proto_of(models)
    pieces = [[piece.piece, piece.score] for piece in model.pieces]
    return as_tokenizer_json(pieces, normalizer_of(model, *(steps or ("NFKD", "StripAccents"))))


def proto_of(models, variant="albert"):
    return sentencepiece_model_pb2.ModelProto.FromString(open(models(variant), "rb").read())


def test_unsuitable_models_are_named(models, tmp_path, monkeypatch):
    path = tmp_path / "some.model"
    content = open(models("albert"), "rb").read()
    for damaged in (b"", b"hello", b"[PAD]\n[UNK]\n[CLS]\n", content[: len(content) // 2]):
        path.write_bytes(damaged)
        assert_refused(lambda: SentencePieceTokenizer(path), str(path), "is not a SentencePiece model")
    assert_refused(lambda: FullTokenizer(models("albert")), "is a SentencePiece model", "spm_model_file")
    assert_refused(lambda: SentencePieceTokenizer(tmp_path), "is a folder")
    assert_refused(lambda: SentencePieceTokenizer(tmp_path / "none"), "none")
    write_model(path, control_symbols=[])
    assert_refused(lambda: SentencePieceTokenizer(path), "lacks [CLS], [SEP]", "control_symbols=[CLS],[SEP],[MASK]")
    write_model(path, byte_fallback=True)
    assert_refused(lambda: SentencePieceTokenizer(path), "byte_fallback")
    monkeypatch.setattr(sentencepiece, "__version__", "0.2.3")
    assert_refused(lambda: SentencePieceTokenizer(models("albert")), "sentencepiece 0.2.3", "pip install")


def test_damaged_models_are_refused_or_read(models, tmp_path):
    """None crashes the process, and a model that can be read can be used."""
    rng, path, num_read = random.Random(0), tmp_path / "damaged.model", 0
    for _ in range(60):
        damaged = bytearray(open(models("albert"), "rb").read())
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            SentencePieceTokenizer(path).encode("The smith has 2,000, irons")
        except UserError as error:
            assert str(path) in str(error)
        else:
            num_read += 1
    assert 0 < num_read < 60


def test_models_that_could_end_the_process_are_refused(models, tmp_path):
    """The library trusts the places in compiled normalization rules, and recurses once for each byte of a piece."""

    def with_rules(change):
        model = proto_of(models)
        rules = model.normalizer_spec.precompiled_charsmap
        size = int.from_bytes(rules[:4], "little")
        units = np.frombuffer(rules[4 : 4 + size], "<u4").copy()
        texts = change(units, rules[4 + size :])
        model.normalizer_spec.precompiled_charsmap = rules[:4] + units.tobytes() + texts
        return model

    def loop(units, texts):  # the children of every byte are the first bytes again
        root = (units[0] >> 10) << ((units[0] & 512) >> 6)
        for byte in range(1, 256):
            place = root ^ byte
            units[place] = (place ^ root) << 10 | byte
        return texts

    def many_matches(units, texts):  # "a", "aa", "aaa" and so on are rules
        units[0], units[256 : 41 * 256] = 256 << 2 | 512, 1 << 31
        for base in range(256, 40 * 256, 256):
            units[base ^ 97] = (base ^ 97 ^ (base + 256)) << 10 | 256 | 97
        return texts

    def value_outside(units, texts):
        units[np.flatnonzero(units >> 31)] = 0xFFFFFFFF
        return texts

    def place_outside(units, texts):
        units[0] = 0x7FFFFC00
        return texts

    def refused(model, message):
        path = tmp_path / "some.model"
        path.write_bytes(model.SerializeToString())
        assert_refused(lambda: SentencePieceTokenizer(path), str(path), message)

    for damage in (loop, many_matches, value_outside, place_outside, lambda units, texts: texts[:-1] + b"a"):
        refused(with_rules(damage), "normalization rules (precompiled_charsmap) are damaged")
    content = as_tokenizer_json([["<pad>", 0.0], ["<unk>", 0.0], ["[CLS]", 0.0], ["[SEP]", 0.0], ["[MASK]", 0.0]],
                                normalizer_of(with_rules(place_outside), "NFKD", "StripAccents"))  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert_refused(lambda: load_tokenizer(tmp_path), "tokenizer.json", "(precompiled_charsmap) are damaged")
    model = with_rules(lambda units, texts: texts)
    model.pieces.add(piece="a" * 300, score=-1.0)
    refused(model, "has 300 characters")
    model.pieces[-1].piece, model.pieces[-1].score = "aaaa", float("nan")
    refused(model, "the score nan")
