"""Texts that are split into words before the vocabulary is applied: Japanese by MeCab, Korean by Kiwi."""

import json
import os
import re
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
from starlette.testclient import TestClient

from official_bert import FullTokenizer, Predictor, load_tokenizer
from official_bert.families.family import load_family
from official_bert.options.groups import BatchingSettings
from official_bert.serving.app import make_app
from official_bert.serving.served_model import ServedModel
from official_bert.support.errors import UserError
from tests.conftest import GOLDEN, ROOT, assert_fails, run_script
from tests.tokenization.hard_texts import write_folder

TEXTS, WORDS, SETTINGS, IDS = json.loads((GOLDEN / "tokenization" / "japanese.json").read_text()).values()
PACKAGES = ["fugashi", "ipadic", "unidic-lite", "kiwipiepy", "kiwipiepy-model"]
FLAGS = {"kiwi": {}, "mecab-ipadic,lower": {"basic_tokenize": False, "do_lower_case": False}}
ANSWERS = {  # the context, with the question and the answer
    "kiwi": ("어제 서울의 학교에 갔다. 음악이 아름다웠다.", "어디의 학교에 갔습니까?", "서울"),
    "mecab-ipadic,lower": ("昨日は東京のｶﾞﾗｽの町に行きました。とても楽しかった。", "何の町に行きましたか。", "ｶﾞﾗｽ"),
}


def needs(morphemes):
    for package in ["kiwipiepy"] if morphemes == "kiwi" else ["fugashi", re.split("[-, ]", morphemes)[1]]:
        pytest.importorskip(package, reason=f"needs {package}, of the extra korean or japanese")


def folder_of(folder, settings):
    config = {"tokenizer_class": "BertJapaneseTokenizer", **settings}
    return write_folder(folder, WORDS, tokenizer_config=config)


@pytest.mark.parametrize("morphemes", IDS)
def test_a_japanese_folder_gives_the_ids_of_transformers(tmp_path, morphemes):
    needs(morphemes)
    tokenizer = load_tokenizer(folder_of(tmp_path, SETTINGS[morphemes]))
    assert tokenizer.settings.morphemes == morphemes
    assert [tokenizer.encode(text) for text in TEXTS] == IDS[morphemes]
    split = tokenizer.of_split_text()  # as exports read texts
    assert [split.encode(tokenizer.split_text(text)) for text in TEXTS] == IDS[morphemes]
    for text, ids in zip(TEXTS, IDS[morphemes], strict=True):
        encoding = tokenizer.encode_with_offsets(text)
        assert encoding.ids == ids
        for token, start, end in zip(tokenizer.convert_ids_to_tokens(ids), encoding.starts, encoding.ends, strict=True):
            shown = unicodedata.normalize("NFKC", text[start:end])
            assert token == "[UNK]" or token.removeprefix("##") in f"{shown} {shown.lower()}"
    written = tokenizer.to_hugging_face(load_family("bert"), 64)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(written))
    assert load_tokenizer(tmp_path).identity == tokenizer.identity and tokenizer.to_tokenizer_json() is None


def test_other_splits_of_a_japanese_folder(tmp_path):
    basic = load_tokenizer(folder_of(tmp_path, {})).settings
    assert (basic.do_lower_case, basic.tokenize_chinese_chars, basic.morphemes) == (False, False, None)
    assert load_tokenizer(folder_of(tmp_path, {"do_word_tokenize": False})).settings.basic_tokenize is False
    for settings, message in (
        ({"word_tokenizer_type": "sudachi"}, "word_tokenizer_type is 'sudachi', which is not supported"),
        ({"word_tokenizer_type": "basic", "subword_tokenizer_type": "character"}, "supported only for MeCab's words"),
        ({"mecab_kwargs": {"normalize_text": False}}, "normalize_text is False"),
        ({"mecab_kwargs": {"mecab_option": "-u file"}}, "mecab_option is '-u file', which is not supported"),
        ({"mecab_kwargs": {"mecab_dic": "unidic"}}, "MeCab finds no dictionary; run: pip install"),
        ({"mecab_kwargs": {"mecab_dic": None}}, "mecab_dic is None, which is not supported"),
    ):
        with pytest.raises(UserError, match=message):
            load_tokenizer(folder_of(tmp_path, {"word_tokenizer_type": "mecab", **settings}))
    for morphemes in ("kiwi,lower", "kiwi -d x", "mecab", "mecab-ipadic,upper", "komoran"):
        with pytest.raises(UserError, match="choose from kiwi, mecab-unidic_lite"):
            FullTokenizer(tmp_path / "vocab.txt", False, basic_tokenize=False, morphemes=morphemes)
    with pytest.raises(UserError, match="mecab-ipadic needs basic_tokenize=false"):
        FullTokenizer(tmp_path / "vocab.txt", morphemes="mecab-ipadic")


def test_kiwi_cuts_a_text_at_its_morphemes(vocab_file):
    needs("kiwi")
    tokenizer = FullTokenizer(vocab_file, morphemes="kiwi")
    for text in ("나는 학교에 갔다. 😀 너무 예뻐서", unicodedata.normalize("NFD", "나는 학교에 갔다. 😀 너무 예뻐서")):
        assert tokenizer.split_text(f"\ud800{text}\n") == "나 는 학교 에 갔 다 . 😀 너무 예뻐서"
    for text in ("the river 는", "", " \n", "넌 그걸 봤니?ㅋㅋ"):
        encoding = tokenizer.encode_with_offsets(text)
        assert encoding.ids == tokenizer.encode(text)
        assert [*encoding.starts] == sorted(encoding.starts) and all(map(int.__lt__, encoding.starts, encoding.ends))


@pytest.mark.endurance
@pytest.mark.parametrize("morphemes", ["mecab-ipadic,lower", "kiwi"])
def test_a_split_corpus_becomes_a_model_that_splits_texts(morphemes, tmp_path, model_dir, monkeypatch):
    """From a corpus to answers, an export of split text, and vectors of a server."""
    needs(morphemes)
    context, question, answer = ANSWERS[morphemes]
    paragraph = {"context": context, "qas": [{"id": "1", "question": question, "answers": []}]}
    paragraph["qas"][0]["answers"].append({"text": answer, "answer_start": context.index(answer)})
    (tmp_path / "corpus.txt").write_text(f"{context}\n{question}\n\n{question}\n{context}\n")
    (tmp_path / "squad.json").write_text(json.dumps({"version": "1.1", "data": [{"paragraphs": [paragraph]}]}))
    monkeypatch.chdir(tmp_path)

    def run(command, **flags):
        result = run_script(command, **flags)
        assert result.code == 0, result
        return result.errors

    text = {"strip_accents": morphemes != "kiwi", "morphemes": morphemes, **FLAGS[morphemes]}
    corpus = {"input_file": "corpus.txt", "vocab_file": "vocab.txt", **text}
    sizes = {"max_seq_length": 64, "max_predictions_per_seq": 5}
    run("build_vocab", **corpus, vocab_size=100, min_frequency=1)
    words = load_tokenizer(".", **text).split_text(context).split()
    run("create_pretraining_data", **corpus, output_file="records", **sizes)
    config = json.loads((model_dir / "bert_config.json").read_text())
    config |= {"vocab_size": len(open("vocab.txt").readlines()), "num_hidden_layers": 1}
    config |= dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    (tmp_path / "bert_config.json").write_text(json.dumps(config))
    model = {"bert_config_file": "bert_config.json", "output_dir": "pretrained"}
    run("run_pretraining", input_file="records", **model, do_train=True, num_train_steps=2, **sizes)
    squad = {"train_file": "squad.json", "predict_file": "squad.json", "init_checkpoint": "pretrained"}
    squad |= {"max_seq_length": 64, "max_query_length": 20, "doc_stride": 16, "do_train": True}
    other, flags = "mecab-ipadic", {"basic_tokenize": False, "do_lower_case": False}
    refused = run_script("run_squad", **squad, output_dir="other", morphemes=other, **flags)
    assert_fails(refused, f"morphemes={other}, but", f"was trained with {morphemes}")
    squad |= {"train_batch_size": 1, "num_train_epochs": 60, "learning_rate": 1e-3, "export_dir": "export"}
    run("run_squad", **squad, output_dir="answers", do_predict=True, do_export=True)
    assert json.loads(open("answers/predictions.json").read()) == {"1": answer}

    answered, split = Predictor("answers"), load_tokenizer("answers").split_text
    best, there = answered((question, context))[0], Predictor("export")((split(question), split(context)))[0]
    assert (best.text, best.start) == (answer, context.index(answer)) and split(context).split() == words
    assert (there.text, there.probability) == (split(answer), pytest.approx(best.probability, abs=1e-5))
    said = json.loads(open("export/1/official_bert.json").read())
    assert (said["morphemes"], said["reads"]) == (morphemes, "texts that are split into words")

    logged = run("export_embeddings", init_checkpoint="pretrained", export_dir="vectors", max_seq_length=32)
    assert "reads texts that are split already" in logged
    client = TestClient(make_app(ServedModel("vectors", BatchingSettings(num_batch_threads=1)), "vectors"))
    found = client.post("/embed", json={"inputs": [context], "normalize": False}).json()
    np.testing.assert_allclose(found, Predictor("pretrained").embed([context]), atol=1e-5)


@pytest.mark.endurance
def test_all_packages_in_a_folder_of_their_own(tmp_path):
    folders = [tmp_path / "packages", *filter(None, map(os.path.abspath, sys.path))]
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folders[0], *PACKAGES]
    subprocess.run(command, check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "more.pth").write_text("".join(f"{folder}\n" for folder in folders))
    command = [tmp_path / "venv" / "bin" / "python", "-m", "pytest", "-q", "-n", "0", "-m", "not endurance", __file__]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0 and "skipped" not in result.stdout, result.stdout
