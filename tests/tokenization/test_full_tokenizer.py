"""The tokenizer of a model's folder, batches equal to the training records, and decoding."""

import json
import pickle
import random
import re
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from official_bert.config.text_settings import TextSettings
from official_bert.data.schema import ENCODER_FIELDS, RecordSchema
from official_bert.support.errors import UserError
from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.tasks.classification.records import LabelledText, TextJoiner
from official_bert.tokenization import FullTokenizer, Vocabulary
from official_bert.training.run_folder import write_run_config
from tests.conftest import GOLDEN, golden_arrays
from tests.tokenization.hard_texts import ACCENTED, CASED, PRESPLIT, SPECIALS, UNCASED, random_text, write_folder

LOWER = [*SPECIALS, "the", "harbour", "##s", "don", "'", "t"]
CASED_TOKENS = [*LOWER, "The", "Zoe"]
UPPER = {"flags": {"do_lower_case": False}}


def rows(batch):
    return {name: values.tolist() for name, values in batch.items()}


# Batches


def test_a_batch_is_padded_to_the_longest(tokenizer):
    the, harbour, a = tokenizer.convert_tokens_to_ids(["the", "harbour", "a"])
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    batch = tokenizer(["the harbour", ("the", "harbour a"), ""])
    assert rows(batch) == {
        "input_ids": [[cls, the, harbour, sep, 0, 0], [cls, the, sep, harbour, a, sep], [cls, sep, 0, 0, 0, 0]],
        "input_mask": [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0]],
        "segment_ids": [[0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0]],
    }
    assert {values.dtype for values in batch.values()} == {np.dtype(np.int32)}


def test_the_ways_to_give_texts_and_pairs(tokenizer):
    single, pair = tokenizer(["the town"]), tokenizer([("the town", "a harbour")])
    assert single["input_ids"].shape[0] == pair["input_ids"].shape[0] == 1
    assert rows(tokenizer("the town")) == rows(tokenizer([b"the town"])) == rows(single)
    assert rows(tokenizer("the town", "a harbour")) == rows(pair)
    assert rows(tokenizer(["the town"], ["a harbour"])) == rows(pair)
    assert rows(tokenizer([("the town", "")])) == rows(tokenizer([("the town", None)])) == rows(single)
    assert rows(tokenizer(["the town"], [None])) == rows(tokenizer("the town", "")) == rows(single)
    both = tokenizer(["the town", "the town"], [None, "a harbour"])
    assert rows(both) == rows(tokenizer(np.array(["the town", "the town"]), iter([None, "a harbour"])))
    assert rows(both) == rows(tokenizer(iter(["the town", ("the town", "a harbour")])))


def test_batches_equal_the_records_of_training(tokenizer):
    rng = random.Random(7)
    for number in range(150):
        length = rng.choice([*range(3, 20), 64])
        pairs = []
        for _ in range(8):
            first, second = (" ".join(random_text(rng, 2) for _ in range(rng.randint(0, 5))) for _ in "ab")
            pairs.append((first, rng.choice([None, "", " ", second, second])))
        joiner = TextJoiner(tokenizer, max_seq_length=length)
        schema = RecordSchema(*ENCODER_FIELDS).sized(S=length, V=tokenizer.vocabulary.size, T=2)
        expected = schema.decode([schema.encode(joiner.join(LabelledText(pair, 0), Counter())) for pair in pairs])
        padded = tokenizer(pairs, max_seq_length=length, padding="max_length")
        longest = padded["input_mask"].sum(axis=1).max()
        assert padded.keys() == expected.keys()
        for name, values in tokenizer(pairs, max_seq_length=length).items():
            np.testing.assert_array_equal(padded[name], expected[name].numpy(), err_msg=f"{name} of batch {number}")
            np.testing.assert_array_equal(padded[name][:, :longest], values, err_msg=name)


def test_batches_equal_the_records_of_the_reference(tokenizer):
    case = json.loads((GOLDEN / "classifier" / "classifier_pairs.json").read_text())
    arrays = golden_arrays("classifier/classifier_pairs.npz")
    pairs = [(first, second) for first, second, _ in case["examples"]]
    for name, values in tokenizer(pairs, max_seq_length=case["max_seq_length"], padding="max_length").items():
        np.testing.assert_array_equal(values, arrays[name].reshape(values.shape), err_msg=name)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ([("a", "b")], {}, "a tuple is ambiguous"),
        ([None], {}, "texts is None; give one text, or a list"),
        ([{"text": "a"}], {}, "texts is {'text': 'a'}; give one text"),
        ([["a", ["b", "c"]]], {}, "example 1 is ['b', 'c']; it must be a text or a tuple of two"),
        ([[("a", "b", "c")]], {}, "example 0 is ('a', 'b', 'c'); it must be"),
        ([["a", "b"], ["c"]], {}, "there are 2 texts, but 1 text_pairs"),
        ([["a"], "b"], {}, "text_pairs is 'b'; give one text, or a list"),
        ([[("a", "b")], ["c"]], {}, "example 0 is (('a', 'b'), 'c'); it must be"),
        ([["a"], [7]], {}, "example 0 is ('a', 7); it must be"),
        *((["a"], {"max_seq_length": length}, " must be a whole number of at least 3") for length in (2, -1, 8.0, "8")),
        *((["a"], {"max_seq_length": length}, " must be a whole number of at least 3") for length in (None, True)),
        (["a"], {"padding": False}, "padding=False must be 'longest' or 'max_length'"),
        (["a"], {"return_tensors": "pt"}, "return_tensors='pt': the results are NumPy arrays"),
        (["a"], {"return_attention_mask": False}, "return_attention_mask=False: the mask is always returned, as input"),
        (["a"], {"truncation": False}, "truncation=False: texts are always truncated"),
        (["a"], {"stride": 3}, "stride=3: there is no such argument"),
    ],
)
def test_arguments_that_cannot_be_are_refused(tokenizer, arguments, options, message):
    with pytest.raises(UserError, match=re.escape(message)):
        tokenizer(*arguments, **options)


def test_lengths_of_batches(tokenizer):
    assert tokenizer([])["input_ids"].shape == (0, 2)
    assert tokenizer([], max_seq_length=9, padding="max_length")["input_ids"].shape == (0, 9)
    assert tokenizer("the " * 600)["input_ids"].shape == (1, 512)
    assert tokenizer("the " * 600, max_seq_length=np.int64(600))["input_ids"].shape == (1, 600)


def test_arguments_and_attributes_have_the_names_of_transformers(tokenizer):
    texts = ["the harbour", "a"]
    options = {"padding": True, "truncation": True, "return_tensors": "np", "max_length": 3}
    assert rows(tokenizer(texts, **options)) == rows(tokenizer(texts, max_seq_length=3))
    assert rows(tokenizer(text="a", text_pair="the", return_attention_mask=True)) == rows(tokenizer("a", "the"))
    tensors = tokenizer(texts, return_tensors="tf")
    assert all(tf.is_tensor(tensor) for tensor in tensors.values())
    assert rows({name: tensor.numpy() for name, tensor in tensors.items()}) == rows(tokenizer(texts))
    assert tokenizer.batch_decode(tensors["input_ids"]) == [*map(tokenizer.decode, tokenizer(texts)["input_ids"])]
    assert tokenizer.get_vocab() == tokenizer.vocab
    for name in ("cls", "sep", "pad", "mask", "unk"):
        assert getattr(tokenizer, f"{name}_token_id") == getattr(tokenizer, f"{name}_id")
        assert getattr(tokenizer, f"{name}_token") == f"[{name.upper()}]"
    assert tokenizer.vocab_size == len(tokenizer)
    with pytest.raises(AttributeError, match="'FullTokenizer' object has no attribute 'encode_plus'; use tokenizer"):
        tokenizer.encode_plus("a")
    for look_up in (lambda: tokenizer.convert_tokens_to_ids("the"), lambda: tokenizer.convert_ids_to_tokens(5)):
        with pytest.raises(UserError, match="^('the'|5) is not a list of tokens or ids"):
            look_up()


# Special tokens and text


def test_special_tokens_and_the_number_of_ids(tmp_path, tokenizer):
    small = FullTokenizer(Vocabulary({token: index for index, token in enumerate(reversed(LOWER))}))
    assert len(small) == len(LOWER)
    ids = [small.pad_id, small.unk_id, small.cls_id, small.sep_id, small.mask_id]
    assert small.convert_ids_to_tokens(ids) == [*SPECIALS]
    assert len(tokenizer) == tokenizer.vocabulary.size == 1 + max(tokenizer.inv_vocab)
    bare = FullTokenizer(Vocabulary({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2}, "bare.txt"))
    for name in ("mask", "pad"):
        with pytest.raises(UserError, match=rf"bare.txt lacks \[{name.upper()}\]"):
            getattr(bare, f"{name}_id")


def test_decode_joins_wordpieces_and_leaves_out_what_frames_them():
    tokenizer = FullTokenizer(Vocabulary({token: index for index, token in enumerate(LOWER)}))
    (ids,) = tokenizer("The harbours  don't XYZ", max_seq_length=12, padding="max_length")["input_ids"]
    assert tokenizer.decode(ids) == "the harbours don ' t [UNK]"
    assert tokenizer.decode(ids[:4].tolist(), skip_special_tokens=False) == "[CLS] the harbours"
    assert tokenizer.decode([tokenizer.mask_id, 7, 0]) == "[MASK]s"
    assert tokenizer.decode([7]) == "##s"
    assert tokenizer.decode([]) == ""
    with pytest.raises(KeyError, match="99 is not in the vocabulary"):
        tokenizer.decode([99])
    for ids in (5, [[5], [6]], np.zeros([2, 3], np.int32)):
        with pytest.raises(UserError, match=r"decode takes the ids of one sequence, .*\[tokenizer.decode\(row\) for"):
            tokenizer.decode(ids)


def test_decoded_text_encodes_to_the_same_ids(tokenizer):
    rng = random.Random(3)
    for _ in range(500):
        ids = tokenizer.encode(" ".join(random_text(rng, 2) for _ in range(4)))
        if tokenizer.unk_id not in ids:
            assert tokenizer.encode(tokenizer.decode(ids)) == ids


# Folders


@pytest.mark.parametrize(
    ("tokens", "json_files", "is_lower", "source"),
    [
        (CASED_TOKENS, {}, False, "the vocabulary, which has wordpieces with capital letters"),
        ([*SPECIALS, "한"], {}, True, "the vocabulary, which has no capital letters"),
        (LOWER, {"run_config": {"flags": {"train_file": "a"}}}, True, "the vocabulary"),
        (LOWER, {"tokenizer_config": {"model_max_length": 5}, "run_config": UPPER}, False, "run_config.json"),
        (LOWER, {"tokenizer_config": {"do_lower_case": True}, "run_config": UPPER}, True, "tokenizer_config.json"),
    ],
)
def test_a_folder_says_whether_text_is_lowercased(tmp_path, caplog, tokens, json_files, is_lower, source):
    folder = write_folder(tmp_path / "model", tokens, **json_files)
    caplog.set_level("INFO", logger="absl")
    tokenizer = FullTokenizer.from_folder(folder)
    assert tokenizer.basic_tokenizer.do_lower_case is is_lower
    assert f"{folder}: do_lower_case={str(is_lower).lower()} according to {source}" in caplog.text
    assert list(tokenizer.vocab) == tokens


def test_the_output_folder_of_a_run_is_such_a_folder(tmp_path):
    folder = write_folder(tmp_path / "run", LOWER)
    flags = dict.fromkeys(("data_dir", "bert_config_file", "vocab_file", "output_dir"), "somewhere")
    write_run_config(str(folder), ClassifierConfig(**flags, task_name="mrpc", do_train=True, do_lower_case=False))
    assert FullTokenizer.from_folder(folder).basic_tokenizer.do_lower_case is False


def test_settings_that_contradict_each_other_are_refused(tmp_path):
    folder = write_folder(tmp_path / "model", LOWER, tokenizer_config={"do_basic_tokenize": False})
    as_they_are = "basic_tokenize=false takes words as they are and lowercases nothing; give do_lower_case=false"
    cased = write_folder(tmp_path / "cased", CASED_TOKENS, tokenizer_config={"do_lower_case": True})
    refusal = "strip_accents needs do_lower_case"
    vocab_file = folder / "vocab.txt"
    for make, message in (
        (lambda: FullTokenizer(vocab_file, basic_tokenize=False), as_they_are),
        (lambda: FullTokenizer(vocab_file, do_lower_case=False, strip_accents=False), refusal),
        (lambda: FullTokenizer.from_folder(folder, do_lower_case=True), as_they_are),
        (lambda: FullTokenizer.from_folder(folder, strip_accents=False), refusal),
        (lambda: FullTokenizer.from_folder(cased), r"vocab\.txt is cased .* give do_lower_case=false"),
    ):
        with pytest.raises(UserError, match=message):
            make()


def test_each_tokenizer_keeps_its_own_words_and_takes_its_settings_to_other_processes(tmp_path):
    vocabulary = Vocabulary({token: index for index, token in enumerate([*CASED_TOKENS, "é", "É", "e", "é.", "."])})
    expected = {UNCASED: ["e", "."], CASED: ["É", "."], ACCENTED: ["é", "."], PRESPLIT: ["[UNK]"]}
    tokenizers = {settings: FullTokenizer(vocabulary, **settings._asdict()) for settings in expected}
    for _ in range(2):
        for settings, tokenizer in tokenizers.items():
            for copy in (tokenizer, pickle.loads(pickle.dumps(tokenizer))):
                assert copy.tokenize("É.") == expected[settings]
                assert copy.encode_with_offsets("É.").ids == copy.encode("É.")
                assert copy.settings == settings
    new = pickle.dumps(FullTokenizer(vocabulary))
    assert len(new) == len(pickle.dumps(tokenizers[UNCASED]))  # without the words that it has seen


def test_folders_without_a_vocabulary_are_refused(tmp_path):
    folder = write_folder(tmp_path / "model", LOWER, run_config={"flags": {"do_lower_case": "yes"}})
    for path, message in (
        (tmp_path, r"has no vocabulary: neither wordpiece.json nor vocab\.txt nor spiece\.model nor .* exists"),
        ("bert-base-uncased", "there is no folder bert-base-uncased; write a model of the Hugging Face Hub"),
        (folder / "vocab.txt", r"vocab\.txt is a file; give its folder, or read a vocab\.txt with FullTokenizer\("),
    ):
        with pytest.raises(UserError, match=message):
            FullTokenizer.from_folder(path)
    for settings in ({"flags": {"do_lower_case": "yes"}}, {"flags": None}, {}):
        write_folder(folder, LOWER, run_config=settings)
        with pytest.raises(UserError, match=r"run_config\.json was not written by a run; restore it or pass do_lower_"):
            FullTokenizer.from_folder(folder)
        given = FullTokenizer.from_folder(folder, **TextSettings(strip_accents=False)._asdict())
        assert given.settings == TextSettings(strip_accents=False)
