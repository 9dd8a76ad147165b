"""Commands that write records do not import TensorFlow, which takes more time and memory than a small job."""

import json
import subprocess
import sys

import pytest

from tests.conftest import GOLDEN, ROOT, script_environment

_REPORT = r"""
import json, re, sys
peak = int(re.search(r"VmHWM:\s+(\d+) kB", open("/proc/self/status").read())[1]) // 1024
print(json.dumps({"imported": [name for name in ("tensorflow", "keras", "jax") if name in sys.modules], "MB": peak}))
"""
_SCRIPT = """
import runpy, sys
sys.argv = sys.argv[1:]
try:
    if sys.argv[0].endswith(".py"):
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        sys.argv[:1] = ["official_bert", sys.argv[0]]
        runpy.run_module("official_bert", run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
"""
_TASKS = """
import sys
from official_bert.data.record_files import ExampleSplit, RecordFile, write_split
from official_bert.tasks.classification.records import LabelledText, TextJoiner, classification_schema
from official_bert.tasks.question_answering.data import read_squad
from official_bert.tasks.question_answering.data import PREDICTION_SCHEMA, TRAINING_SCHEMA
from official_bert.tasks.question_answering.data import TokenizedSquad, TrainingWindows, WindowOptions
from official_bert.tasks.tagging import records as tagging
from official_bert.tasks.tagging.data import TaggedFile, TaggedSentence
from official_bert.tokenization import FullTokenizer

vocab_file, squad_file, folder = sys.argv[1:]
tokenizer = FullTokenizer(vocab_file)
lengths = {"S": 32, "V": len(tokenizer), "T": 2}
schema = classification_schema("single_label").sized(C=2, **lengths)
joiner = TextJoiner(tokenizer, max_seq_length=32)
examples = ExampleSplit(joiner, [LabelledText(("a text", None), 0), LabelledText(("one", "two"), 1)])
assert write_split(RecordFile(folder + "/texts", schema), examples) == 2
schema = tagging.TAGGING_SCHEMA.sized(N=3, **lengths)
file = TaggedFile("", [TaggedSentence(("a", "sentence"), None, 0, 1)], [], "columns", " ", 2)
words = tagging.TaggedSplit(file, ["O", "B-PER"], [[0, 1]], tokenizer, 32, False)
assert write_split(RecordFile(folder + "/words", schema), words) == 1
squad = read_squad(squad_file, for_training=True, version_2=False)
options = WindowOptions(max_seq_length=64, doc_stride=32, max_query_length=16)
schema = TRAINING_SCHEMA.sized(S=64)
assert write_split(RecordFile(folder + "/train", schema), TrainingWindows(squad, tokenizer, options, False))
tokenized = TokenizedSquad(squad, tokenizer, options)
assert write_split(RecordFile(folder + "/eval", PREDICTION_SCHEMA.sized(S=64)), tokenized)
"""


def run_fresh(code, *arguments):
    """Run code in a new process; return its imported large packages and its peak memory in MB."""
    process = subprocess.run(
        [sys.executable, "-c", code + _REPORT, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=script_environment(),
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("script", "flags"),
    [
        ("create_pretraining_data.py", ["--output_file={folder}/out.tfrecord", "--vocab_file={vocab}"]),
        ("create_pretraining_data.py", ["--output_file={folder}/out", "--vocab_file={vocab}", "--compression=gzip"]),
        ("build_vocab", ["--vocab_file={folder}/vocab.txt", "--vocab_size=400"]),
        ("split_sentences", ["--output_file={folder}/out.txt", "--num_processes=1"]),
    ],
)
def test_scripts_of_local_files(script, flags, corpus_file, vocab_file, tmp_path):
    flags = [flag.format(folder=tmp_path, vocab=vocab_file) for flag in flags]
    report = run_fresh(_SCRIPT, script, f"--input_file={corpus_file}", *flags)
    assert report["imported"] == []
    assert report["MB"] < 200


def test_records_of_all_tasks(vocab_file, tmp_path):
    squad_file = GOLDEN / "inputs" / "squad_v1.json"
    assert run_fresh(_TASKS, vocab_file, squad_file, tmp_path)["imported"] == []
    assert {path.name for path in tmp_path.iterdir()} >= {"texts", "words", "train", "eval"}
