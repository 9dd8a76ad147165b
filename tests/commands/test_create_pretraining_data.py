"""Errors of `create_pretraining_data.py`; for records see tests/tasks, for the process test_scripts.py."""

import json
import os
import shutil

import pytest

from official_bert.data.vocab_learner import SPECIAL_PIECES
from tests.compressing import COMPRESS
from tests.conftest import assert_fails, assert_refused, run_here, run_script


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"masking": "none", "masked_lm_prob": 0.2}, ["--masked_lm_prob needs --masking=static"]),
        ({"use_next_sentence": False, "sentence_order": True}, ["--sentence_order needs --use_next_sentence"]),
        ({"max_ngram_length": 3}, ["--max_ngram_length needs --do_whole_word_mask"]),
        ({"output_file": "absent/folder/out"}, ["--output_file=absent/folder/out", "does not exist"]),
        ({"text_field": "body", "input_format": "text"}, ["--text_field needs --input_format=auto or jsonl or"]),
        ({"vocab_file": "out", "output_file": "out"}, ["is also an input"]),
        ({"input_file": "out", "output_file": "out"}, ["is also an input"]),
    ],
)
def test_flags_and_files_that_do_not_serve(corpus_file, vocab_file, tmp_path, monkeypatch, changes, parts):
    monkeypatch.chdir(tmp_path)
    copy = shutil.copy(vocab_file, "out")
    flags = {"input_file": corpus_file, "output_file": "out.tfrecord", "vocab_file": vocab_file}
    assert_refused("create_pretraining_data", {**flags, **changes}, *parts)
    assert open(copy, "rb").read() == open(vocab_file, "rb").read()


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        ('<doc id="1" url="u" title="A">\nA\n\nA boat.\n\n</doc>\n', {}, "give --input_format=wikiextractor"),
        ('{"text": "A boat."}\n', {}, "looks like JSON Lines, which is read as text; give --input_format=jsonl"),
        ("우리는 섬에 산다.\n비가 온다. It rains.\n", {}, "the text is Korean: stripping accents"),
        ("우리는 섬에 산다.\n", {"strip_accents": False}, None),
        ("It rains every day in 서울, again and again.\n", {}, None),
        ("A boat.\n", {}, None),
    ],
)
def test_text_that_needs_other_flags_is_warned_of(tmp_path, caplog, text, flags, message):
    (tmp_path / "a").write_text(text * 9)
    (tmp_path / "jamo.txt").write_text("\n".join([*SPECIAL_PIECES, "\u1112", "a"]))
    flags = {**flags, "input_file": tmp_path / "a"}
    run_here("build_vocab", **flags, vocab_file=tmp_path / "vocab.txt", vocab_size=200)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == (message is not None) and (message or "") in "".join(warnings)
    caplog.clear()
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_PIECES, "비", "##가", "a"]))
    for vocabulary in ("vocab.txt", "jamo.txt"):
        run_here("create_pretraining_data", **flags, vocab_file=tmp_path / vocabulary, output_file=tmp_path / "out")
        is_expected = message is not None and not (vocabulary == "jamo.txt" and "Korean" in message)
        assert (message is not None and message in caplog.text) == is_expected
        caplog.clear()


def test_articles_of_wikiextractor_are_documents(tmp_path, corpus_file, vocab_file):
    documents = open(corpus_file).read().strip().split("\n\n")
    articles = [f'<doc id="1" title="T">\nT\n\n{document}\n\n</doc>\n' for document in documents]
    (tmp_path / "wiki_00").write_text("".join(articles))
    for path, file_format in ((corpus_file, "text"), (tmp_path / "wiki_00", "wikiextractor")):
        flags = {"input_format": file_format, "input_file": path, "vocab_file": vocab_file, "dupe_factor": 1}
        run_here("create_pretraining_data", **flags, output_file=tmp_path / file_format)
    assert (tmp_path / "text").read_bytes() == (tmp_path / "wikiextractor").read_bytes()


def test_records_that_would_be_lost_and_none_are_refused(tmp_path, vocab_file):
    (tmp_path / "in.txt").write_text("cat\n\nbaker\n\nthe\n")
    (tmp_path / "work").mkdir()
    flags = {"input_file": tmp_path / "in.txt", "vocab_file": vocab_file, "output_file": tmp_path / "work" / "out"}
    work = {"sampling": "sharded", "work_dir": tmp_path / "work"}
    assert_refused("create_pretraining_data", {**flags, **work}, "is deleted at the end, but would contain")
    flags["output_file"] = tmp_path / "out"
    assert_refused("create_pretraining_data", {**flags, "sentence_order": True}, "out would have no records; use more")
    assert sorted(os.listdir(tmp_path)) == ["in.txt", "work"]


def test_a_process_reads_them_and_locates_mistakes(vocab_file, tmp_path):
    rows = "".join(json.dumps({"body": f"A boat.\nIt leans {number}."}) + "\n" for number in range(5))
    dump = tmp_path / "corpus" / "dump.jsonl.zst"
    dump.parent.mkdir()
    dump.write_bytes(COMPRESS[".zst"](rows.encode()))
    flags = {"input_file": dump.parent, "vocab_file": vocab_file, "output_file": tmp_path / "out"}
    result = run_script("create_pretraining_data.py", **flags, text_field="body")
    assert result.code == 0, result
    assert "5 documents gave" in result.errors
    result = run_script("create_pretraining_data.py", **flags)
    assert_fails(result, f"error: {dump}, line 1: no key 'text'; the keys are 'body'")
