"""Unusual flag values, file contents and texts give one message or a result, never a traceback.

Hypothesis generates them, from a fixed seed.
"""

import contextlib
import copy
import dataclasses
import json
import pathlib
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from official_bert.commands import all_commands
from official_bert.config.bert_config import BertConfig
from official_bert.config.sentence_modules import longest_text, read_modules, read_prompts
from official_bert.data.corpus_files import CorpusReader, corpus_parts
from official_bert.data.tables import Columns, read_csv, read_json_array, read_jsonl, read_nsmc, read_tsv
from official_bert.options.command import define_flags, from_flags, parse_flags, to_arguments
from official_bert.support.errors import UserError
from official_bert.tasks.question_answering.answers import final_text
from official_bert.tasks.question_answering.data import read_squad
from official_bert.tasks.tagging.data import read_tagged_file
from official_bert.tokenization import BasicTokenizer, FullTokenizer, load_tokenizer
from official_bert.tokenization.graph_tokenizer import GraphTokenizer
from official_bert.tokenization.vocab import Vocabulary
from official_bert.training.run_folder import read_labels

pytestmark = pytest.mark.slow

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"


def tried(test, *strategies, times=10):
    options = {"max_examples": times, "deadline": None, "derandomize": True, "database": None}
    settings(**options, suppress_health_check=list(HealthCheck))(given(*strategies)(test))()


ODD_NUMBERS = "0 -0 1 -1 1e308 -1e308 1e-320 nan inf -inf 2147483648 4294967296 1_000 0x10 ٣ 1,5 1. .5 1e 00"
WHOLE = st.integers() | st.integers(-(10**40), 10**40)
NUMBERS = st.one_of(st.sampled_from(ODD_NUMBERS.split()), WHOLE.map(str), st.floats().map(str))
ODD_WORDS = ["", " ", ",", ",,", "a,,b", "true", "no", "None", "\0", "\n", "--", "-", "~", "*", "[", "../..", "@x"]
PLACES = ["s3://b/x", "gs://b/x", "https://x/y", "file:///x", "x" * 5000, "é" * 300, "\ud800"]
WORDS = st.one_of(st.sampled_from(ODD_WORDS), st.text(max_size=20), st.sampled_from(PLACES))


@pytest.mark.endurance
@pytest.mark.parametrize("name", all_commands())
def test_flags(name):
    config_class = all_commands()[name].config_class
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    required = [name for name, field in fields.items() if field.metadata["required"]]

    def of_field(name):
        choices = fields[name].metadata["choices"]
        values = [NUMBERS, WORDS, *([st.sampled_from(choices)] if choices else [])]
        is_bool = isinstance(fields[name].default, bool)
        written = st.one_of(*values).map(lambda value: f"--{name}={value}")
        return st.one_of(written, st.sampled_from([f"--{name}", f"--no{name}"])) if is_bool else written

    some = st.lists(st.sampled_from(sorted(fields)).flatmap(of_field), max_size=4)

    def test(arguments):
        values = flags.FlagValues()
        define_flags(config_class, values)
        plain = [f"--{name}=x" for name in required]
        try:
            parse_flags(values, ["script", *plain, *arguments])
            config = from_flags(config_class, values)
        except UserError as error:
            assert str(error).strip()
            return
        again = flags.FlagValues()  # accepted values can be written and read back
        define_flags(config_class, again)
        parse_flags(again, ["script", *to_arguments(config)])
        assert from_flags(config_class, again) == config

    tried(test, some, times=150)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
SQUAD_KEYS = ["version", "data", "title", "paragraphs", "context", "qas", "id", "question", "answers", "text"]
SQUAD_KEYS += ["answer_start", "is_impossible", "plausible_answers"]
WORDS_OF_CELLS = ["a", "B-PER", "I-PER", "O", "0", "1", "good", '"', '""', "", "\u2028", "-DOCSTART-", "é", "\ufeff"]
CELLS = st.sampled_from([*WORDS_OF_CELLS, "x" * 99])
LINES = st.lists(st.lists(CELLS, max_size=4).map("\t".join) | st.lists(CELLS, max_size=4).map(" ".join), max_size=8)
FILES = st.one_of(
    st.binary(max_size=200),
    LINES.map(lambda lines: "\n".join(lines).encode()),
    st.lists(JSON.map(json.dumps), max_size=4).map(lambda lines: "\n".join(lines).encode()),
    st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")),
)


def squad_like(leaves):
    def nested(inner):
        return st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(SQUAD_KEYS), inner, max_size=6)

    return st.recursive(leaves, nested, max_leaves=20)


ANSWERS = st.fixed_dictionaries({"text": st.text(max_size=4), "answer_start": st.integers(-3, 40)})
QUESTIONS = st.fixed_dictionaries(
    {"id": st.text(max_size=3) | st.integers(), "question": st.text(max_size=9)},
    optional={"answers": st.lists(ANSWERS, max_size=2), "is_impossible": st.booleans() | st.integers(0, 1)},
)
PARAGRAPHS = st.fixed_dictionaries({"context": st.text(max_size=30)}, optional={"qas": st.lists(QUESTIONS, max_size=2)})
WELL_FORMED_SQUAD = st.lists(PARAGRAPHS, max_size=2).map(
    lambda paragraphs: {"version": "1", "data": [{"title": "t", "paragraphs": paragraphs}]}
)


def read_corpus(path, file_format):
    return [list(CorpusReader(part)) for part in corpus_parts([path], file_format=file_format, text_field="text")]


READERS = {
    "vocabulary": Vocabulary.from_file, "config": BertConfig.from_json_file, "tsv": lambda path: list(read_tsv(path)),
    "csv": lambda path: list(read_csv(path)), "jsonl": lambda path: list(read_jsonl(path, Columns(["a"], "good"))),
    "nsmc": lambda path: list(read_nsmc(path)),
    "klue": lambda path: list(read_json_array(path, Columns(["text"], "label", "id"))),
    "corpus": lambda path: read_corpus(path, "auto"), "corpus of JSON lines": lambda path: read_corpus(path, "jsonl"),
    "tags": read_tagged_file, "questions": lambda path: read_squad(path, for_training=True, version_2=True),
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_files(tmp_path, name):
    path = tmp_path / "given.txt"

    def test(content):
        path.write_bytes(content)
        try:
            READERS[name](str(path))
        except UserError as error:
            assert "given.txt" in str(error), error

    contents = FILES
    if name == "questions":
        squad = squad_like(st.text(max_size=9) | st.integers() | st.none() | st.booleans()) | WELL_FORMED_SQUAD
        contents = FILES | squad.map(lambda value: json.dumps(value).encode())
    tried(test, contents)


ODD_JSON = [5, "x", [5], {"a": 5}, None, True, -1, 1.5, [], {}, "", [["x"]], [{"a": 5}], "HUGE", "DEEP"]


def _places(values):
    """Return the place of each value in JSON values, as keys."""
    items = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    return [(key, *rest) for key, inner in [*items][:20] for rest in [(), *_places(inner)]]


def _replaced(values, place, value):
    changed = copy.copy(values)
    changed[place[0]] = _replaced(values[place[0]], place[1:], value) if place[1:] else value
    return changed


@pytest.mark.parametrize("name", ["families/roberta/tokenizer", "sentence_transformers/dense"])
def test_json_of_hugging_face_folders(tmp_path, name):
    folder = shutil.copytree(GOLDEN / name, tmp_path / "model")
    if not (folder / "tokenizer_config.json").exists():
        pytest.importorskip("tokenizers")
        content = load_tokenizer(folder).vocabulary.file_content
        for path in folder.iterdir():
            path.unlink()
        (folder / "tokenizer.json").write_bytes(content)
        (folder / "tokenizer_config.json").write_text('{"add_prefix_space": false, "added_tokens_decoder": {}}')
        (folder / "added_tokens.json").write_text('{"<s>": 0}')
    rng, paths = random.Random(1), sorted(folder.rglob("*.json"))
    contents = {path: path.read_text() for path in paths}
    reads = [lambda: load_tokenizer(folder)]
    if (folder / "modules.json").exists():
        readers = (read_modules, read_prompts, longest_text, read_labels)
        reads += [lambda read=read: read(str(folder)) for read in readers]
        reads.append(lambda: BertConfig.from_json_file(str(folder / "config.json")))
    for path in paths:
        values = json.loads(contents[path])
        for place in rng.choices(_places(values), k=10):
            text = json.dumps(_replaced(values, place, rng.choice(ODD_JSON)))
            path.write_text(text.replace('"HUGE"', "1" + "0" * 400).replace('"DEEP"', "[" * 500 + "]" * 500))
            for read in reads:
                with contextlib.suppress(UserError):
                    read()
        path.write_text(contents[path])


def test_texts(vocab_file):
    """The tokenizer, its offsets, and the exported graph accept any text and give the same pieces."""
    tokenizer = FullTokenizer(vocab_file)
    graph = GraphTokenizer(tokenizer)
    wordpieces = ["the ", "İ", "ß", "ŉ", "ͅ", "가", "각", "가", "中", "👨\u200d👩", "�", "\x00", "\u2028", "##"]
    odd = st.sampled_from(wordpieces)
    texts = st.lists(odd | st.text(max_size=6), max_size=8).map("".join)

    def test(text):
        try:
            text.encode()
        except UnicodeEncodeError:
            return  # files cannot contain lone surrogates
        encoding = tokenizer.encode_with_offsets(text)
        assert list(encoding.ids) == list(tokenizer.encode(text))
        for start, end in zip(encoding.starts, encoding.ends, strict=True):
            assert 0 <= start < end <= len(text)
        np.testing.assert_array_equal(graph.encode(tf.constant([text]))[0], tokenizer.encode(text))

    tried(test, texts)


def test_exact_texts_of_answers():
    tokenizer = BasicTokenizer()
    wordpieces = st.lists(st.sampled_from([*"abAB .,-'’\u0301éİ"]), max_size=12).map("".join)

    def test(predicted, original):
        assert final_text(predicted, original, tokenizer) in original

    tried(test, wordpieces, wordpieces)
