"""Models that people know by name load as docs/models.md says, from the files that they are published with.

`published_models.json` describes these files. Only the sizes are small, and weights and vocabularies are made here;
models with `same_files` differ in nothing but their sizes.
"""

import json
import re
import unicodedata

import numpy as np
import pytest
import sentencepiece
import tokenizers

import official_bert
from official_bert import BertConfig, BertEncoder, DatasetTokenizer, FullTokenizer, load_tokenizer
from official_bert.checkpoints.bundle import write_checkpoint
from official_bert.checkpoints.safetensors import from_hf, write_file
from official_bert.families.family import all_families
from official_bert.inference.finished_runs import find_run
from official_bert.tasks.sentence_encoder.head import find_head
from official_bert.tokenization.hf_tokenizer import KOBERT_FILE, template_of
from official_bert.training.run_folder import read_labels
from tests.checkpoints.pytorch_files import pytorch_file, random_weights
from tests.conftest import GOLDEN, ROOT, run_here, run_script, slow
from tests.tokenization.bpe_models import modernbert_json
from tests.tokenization.sentencepiece_models import FAIRSEQ, write_model
from tests.training.short_runs import runs_of_all_tasks

WORDS, SHARED, MODELS = json.loads((ROOT / "tests" / "families" / "published_models.json").read_text()).values()
EXTRAS = {
    **dict.fromkeys(("roberta", "modernbert"), "[bpe]"),
    "japanese": "[japanese]",
    **dict.fromkeys(("albert", "kobert", "xlm-roberta", "camembert", "deberta"), "[sentencepiece]"),
}
BPE = GOLDEN / "families" / "roberta" / "tokenizer"
TEXT = "CAFÉ 값 The"
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
NUM_PIECES = 1000  # more than the pieces of the vocabularies that are no lists of words
DENSE = {"linear.weight": np.eye(8, dtype=np.float32), "linear.bias": np.zeros(8, np.float32)}


def json_files(model):
    """Return the JSON files of a model; the first is its config."""
    found = {name: {**values} for name, values in model["files"].items() if values is not None}
    return {name: {**SHARED.get(values.pop("base", ""), {}), **values} for name, values in found.items()}


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory):
    """Map vocabularies that are no lists of words to their files."""
    folder = tmp_path_factory.mktemp("vocabularies")
    options = {"albert": {}, "kobert": {"variant": "kobert"}, "deberta": {"variant": "deberta"}, "fairseq": FAIRSEQ}
    models = {name: open(write_model(folder / name, **of), "rb").read() for name, of in options.items()}
    files = {"albert": {"spiece.model": models["albert"]}, "deberta": {"spm.model": models["deberta"]}}
    files["xlm-roberta"] = {"sentencepiece.bpe.model": models["fairseq"]}
    processor = sentencepiece.SentencePieceProcessor(model_proto=(kobert := models["kobert"]))
    pieces = "".join(f"{processor.id_to_piece(index)}\n" for index in range(len(processor)))
    files["kobert"] = {"spiece.model": kobert, KOBERT_FILE: kobert, "vocab.txt": pieces.encode()}
    files["roberta"] = {name: (BPE / name).read_bytes() for name in ("vocab.json", "merges.txt")}
    return files | {"camembert": files["xlm-roberta"], "modernbert": {"tokenizer.json": modernbert_json()}}


def wordpieces(model, config, settings):
    """Return the files of a small vocabulary, with the special tokens where they are published, and its ids."""
    names = model.get("specials", SPECIALS)
    specials = dict(zip(model["ids"], names, strict=True))
    tokens = [specials.get(index, f"[unused{index}]") for index in range(max(specials) + 1)]
    tokens += [*WORDS[model["vocabulary"]], *names[-1:]]
    ids = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    segment = 0 if config.get("type_vocab_size") == 1 else 1
    cls, sep = ([name, ids[name]] for name in names[2:4])
    joining = template_of(cls, sep, num_between=1, second_segment=segment)
    if sep[0] == "</s>":
        joining = {"type": "RobertaProcessing", "sep": sep, "cls": cls, "trim_offsets": True, "add_prefix_space": False}
    values = {**SHARED["tokenizer.json"], "post_processor": joining}
    values["normalizer"] = {**values["normalizer"], "lowercase": settings.get("do_lower_case")}
    values["model"] = {**values["model"], "vocab": ids}
    return {"vocab.txt": "\n".join(ids).encode(), "tokenizer.json": json.dumps(values).encode()}, ids


def module_files(model):
    """Return the files of sentence-transformers."""
    paths = [f"{number}_{kind}" if number else "" for number, kind in enumerate(model["modules"])]
    types = [f"sentence_transformers.models.{kind}" for kind in model["modules"]]
    return {
        "modules.json": [{"path": path, "type": kind} for path, kind in zip(paths, types, strict=True)],
        "1_Pooling/config.json": {f"pooling_mode_{model.get('pooling')}": True, "word_embedding_dimension": 8},
        "1_SpladePooling/config.json": {"pooling_strategy": "max", "activation_function": "relu"},
        "sentence_bert_config.json": {"max_seq_length": model.get("max_seq_length"), "do_lower_case": False},
        "2_Dense/config.json": {"activation_function": "torch.nn.modules.activation.Tanh"},
    }


def publish(folder, name, vocabularies):
    """Write the files of a model; return its config as published, and its weights."""
    model, values = MODELS[name], json_files(MODELS[name])
    config_file, published = next(iter(values.items()))
    made, ids = vocabularies.get(model["vocabulary"]), ()
    if model["vocabulary"] in WORDS:
        made, ids = wordpieces(model, published, values.get("tokenizer_config.json", {}))
    contents = {file: made.get(file, b"") for file in model["files"]}
    contents |= {} if made.keys() & contents.keys() else made
    published["vocab_size"] = len(ids) or NUM_PIECES
    values |= module_files(model) if "modules" in model else {}
    contents |= {file: json.dumps(value).encode() for file, value in values.items()}
    contents |= {"2_Dense/pytorch_model.bin": pytorch_file(DENSE)} if "modules" in model else {}
    for file, content in contents.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_bytes(content)
    config = BertConfig.from_json_file(str(folder / config_file))
    architecture = model.get("weights", published.get("architectures", [None])[0])  # the config may name another class
    weights = random_weights(config, architecture, len(published.get("id2label", "12")))
    if "pytorch_model.bin" in contents:
        (folder / "pytorch_model.bin").write_bytes(pytorch_file(weights))
    elif "model.safetensors" in contents:
        write_file(str(folder / "model.safetensors"), weights)
    else:
        write_checkpoint(str(folder / "bert_model.ckpt"), from_hf(weights, config, "").arrays)
    return published, weights


SOME = [*MODELS][::6]


@pytest.mark.parametrize("name", [*SOME, *slow(*(name for name in MODELS if name not in SOME))])
def test_a_published_model_loads(name, vocabularies, tmp_path):
    for package in ("fugashi", MODELS[name]["needs"]) if "needs" in MODELS[name] else ():
        pytest.importorskip(package, reason=f"needs {package}, of the extra japanese")
    model, (config, weights) = MODELS[name], publish(tmp_path, name, vocabularies)
    config = {"model_type": "bert", "layer_norm_eps": 1e-12, "type_vocab_size": 0, **config}
    tokenizer = load_tokenizer(tmp_path)
    path = tmp_path / "model.safetensors" if name == "bert-base-uncased" else tmp_path  # a folder or its weights
    encoder = BertEncoder.from_checkpoint(path)
    if model["vocabulary"] in WORDS:
        assert tokenizer.tokenize(TEXT) == model.get("tokens", WORDS[model["vocabulary"]])
    else:
        assert tokenizer.decode(tokenizer.encode("the harbour slept")) == "the harbour slept"
    assert [tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id] == model["ids"][:4]
    pair, has_two = tokenizer([("the", "the")]), tokenizer.vocabulary.name_of("[SEP]") == "</s>"
    assert [(pair["input_ids"] == tokenizer.sep_id).sum(), pair["segment_ids"].max()] == ([3, 0] if has_two else [2, 1])

    assert encoder.config.family.name == config["model_type"]
    assert (encoder.config.hidden_act == "gelu") == (name in ("albert-base-v2", "uncased_L-12_H-768_A-12"))
    assert all(getattr(encoder.config, key) == config[key] for key in ("layer_norm_eps", "type_vocab_size"))
    tables = ("word_embeddings.weight", "tok_embeddings.weight")
    words = next(array for name, array in weights.items() if name.endswith(tables))
    np.testing.assert_array_equal(encoder.word_embeddings, words)
    run = find_run(str(tmp_path))
    assert (run and run.task.name) == model.get("task")
    assert not run or "id2label" not in config or read_labels(str(tmp_path)) == [*config["id2label"].values()]
    if "pooling" in model:
        head = find_head(str(tmp_path), encoder)
        assert head.model.poolings == (model["pooling"].split("_")[0],)
        assert head.max_seq_length == model["max_seq_length"]
        after = [(8, "tanh") if kind == "Dense" else None for kind in model["modules"][2:]]
        assert head.model.get_config()["layers_after"] == after
    elif "modules" in model:
        assert find_head(str(tmp_path), encoder).model.poolings == ("splade",)
    if {"vocab.txt", "tokenizer.json"} <= model["files"].keys():  # either is enough
        (tmp_path / "vocab.txt").unlink()
        assert load_tokenizer(tmp_path).identity == tokenizer.identity


PROGRAMS = re.findall(r"^# (\S+).*\n((?:(?!#|```).+\n)+)", (ROOT / "docs" / "models.md").read_text(), re.MULTILINE)


@pytest.mark.endurance
@pytest.mark.parametrize("program", [program for _, program in PROGRAMS], ids=[title for title, _ in PROGRAMS])
def test_the_programs_of_the_page_run(program, vocabularies, tmp_path, monkeypatch, capsys):
    (name,) = re.findall(r'Predictor\("(.+?)"\)', program)
    (tmp_path / name).mkdir(parents=True)
    publish(tmp_path / name, name, vocabularies)
    monkeypatch.chdir(tmp_path)
    exec(f"from official_bert import Predictor\n{program}", {})
    assert capsys.readouterr().out.strip() not in ("", "[]")


_NUMBER = re.compile(r"(-?\d+\.\d+(?:e-?\d+)?)")


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("name", "task"), [("microsoft/deberta-v3-base", "tagging"), ("answerdotai/ModernBERT-base", "question answering")]
)
def test_tags_and_answers_are_learnt_from_a_folder(name, task, vocabularies, tmp_path):
    (tmp_path / "model").mkdir()
    publish(tmp_path / "model", name, vocabularies)
    script, flags = runs_of_all_tasks(tmp_path, {"init_checkpoint": str(tmp_path / "model")}, "", "")[task]
    del flags["vocab_file"]
    export = {"export_dir": str(tmp_path / "export"), "export_format": "tflite"}
    result = run_script(script, **flags, output_dir=str(tmp_path / "run"), do_export=True, **export)
    assert not result.code, result
    given = [("what was it", "the rain broken quay")] if task == "question answering" else ["the rain slept"]
    answers = [str(official_bert.Predictor(str(tmp_path / folder))(given)) for folder in ("run", "export")]
    (texts, numbers), (others, expected) = ((parts[::2], parts[1::2]) for parts in map(_NUMBER.split, answers))
    assert texts == others
    np.testing.assert_allclose(np.array(numbers, float), np.array(expected, float), atol=1e-4)


def test_the_page_has_a_program_for_each_family():
    models = [re.findall(r'Predictor\("(.+?)"\)', program)[0] for _, program in PROGRAMS]
    kinds = [json_files(MODELS[name])["config.json"]["model_type"] for name in models]
    assert sorted(kinds) == sorted(all_families())


@pytest.mark.parametrize("name", ["klue/roberta-base", "sentence-transformers/all-mpnet-base-v2"])
def test_a_model_with_its_own_layout_of_pairs_is_converted_there_and_back(tmp_path, name):
    before, ours, after = (tmp_path / name for name in ("before", "ours", "after"))
    before.mkdir()
    publish(before, name, {})
    run_here("convert_hf_checkpoint", hf_dir=str(before), output_dir=str(ours))
    files = {"bert_config_file": str(ours / "bert_config.json"), "vocab_file": str(ours / "vocab.txt")}
    flags = {**files, "do_lower_case": load_tokenizer(before).settings.do_lower_case, "output_dir": str(after)}
    run_here("convert_hf_checkpoint", to_hf=True, init_checkpoint=str(ours), **flags)
    pairs = [tokenizers.Tokenizer.from_file(f"{path}/tokenizer.json").encode("the", "The") for path in (before, after)]
    assert [pairs[0].ids, pairs[0].type_ids] == [pairs[1].ids, pairs[1].type_ids]
    classes = [json.loads((path / "tokenizer_config.json").read_text())["tokenizer_class"] for path in (before, after)]
    tokenizer = load_tokenizer(after)
    assert classes[0] == classes[1] and tokenizer.identity == load_tokenizer(before).identity
    texts, others = ["the the The </s>", "the"], ["Cafe 값", ""]
    assert {tokenizer.cls_id, tokenizer.sep_id}.isdisjoint(tokenizer.encode(texts[0]))
    found = DatasetTokenizer(tokenizer, max_seq_length=9)(texts, others)
    for key, expected in tokenizer(texts, others, max_seq_length=9).items():
        np.testing.assert_array_equal(found[key], expected)


def test_the_sub_character_kr_bert_reads_decomposed_text(tmp_path):
    """The splits are those of its README, where the text is in NFKD form."""
    pieces = [unicodedata.normalize("NFKD", piece) for piece in ("냉장고", "추", "##ᆸ다", "배", "##ᆺ", "##사람")]
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIALS, *pieces]))
    tokenizer = FullTokenizer(tmp_path / "vocab.txt", do_lower_case=False)
    assert tokenizer.tokenize(unicodedata.normalize("NFKD", "냉장고 춥다 뱃사람")) == pieces
    assert tokenizer.tokenize("춥다") == ["[UNK]"]


def test_the_page_says_which_models_load():
    section = (ROOT / "docs" / "models.md").read_text().split("\n## Your model\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    said = {name: row for row in rows for name in re.findall("`([^`]+)`", row[0])}
    same = {also: name for name, model in MODELS.items() for also in model.get("same_files", ())}
    assert said.keys() == MODELS.keys() | same.keys()
    for name, (_, loads, how) in said.items():
        name = same.get(name, name)
        assert loads.split(",")[0] == "yes", name
        extra = EXTRAS.get(MODELS[name]["vocabulary"], "")
        assert "".join(re.findall(r"\[(?:bpe|japanese|sentencepiece)\]", how)) == extra, name
