"""Making records, killed and interrupted: no incomplete file gets its final name, and a rerun completes it."""

import random
import signal
import subprocess
import time

import pytest

from tests.conftest import endurance, script_environment
from tests.faults import killing

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path, rng = tmp_path_factory.mktemp("corpus") / "corpus.txt", random.Random(3)
    words = ("the", "rain", "snow", "warm", "harbour", "bridge", "town", "was", "a")
    documents = ["".join(" ".join(rng.choices(words, k=9)) + ".\n" for _ in range(6)) for _ in range(500)]
    path.write_text("\n".join(documents))
    return path


def flags_of(folder, corpus, vocab_file, **more):
    folder.mkdir(exist_ok=True)
    names = ",".join(str(folder / f"{number}.tfrecord") for number in range(3))
    return {"input_file": corpus, "output_file": names, "vocab_file": vocab_file, "max_seq_length": 32, **more}


def contents(folder, names="*"):
    return {path.name: path.read_bytes() for path in folder.glob(names)}


SHARDED = {"sampling": "sharded", "num_processes": 2}
SCRIPT = "create_pretraining_data.py"


@pytest.mark.parametrize(
    ("how", "num_kills"), [(SHARDED, 2), *endurance(({}, 10), (SHARDED, 10))], ids=["some", "serial", "sharded"]
)
@pytest.mark.slow
def test_killed_at_any_place_it_is_completed_by_the_same_command(corpus, vocab_file, tmp_path, how, num_kills):
    whole, broken, how = tmp_path / "whole", tmp_path / "broken", {**how, "dupe_factor": 1}
    passed = killing.places(SCRIPT, flags_of(whole, corpus, vocab_file, **how), tmp_path)
    expected, rng = contents(whole), random.Random(num_kills)
    # At the end all files are renamed in turn; a kill between two renames leaves complete files.
    assert passed["rename 2.tfrecord"] == 1
    flags = flags_of(broken, corpus, vocab_file, **how)
    # Fault points that the first process or a worker certainly passes again.
    places = [place for place in sorted(passed) if place.startswith(("write", "rename", "published"))]
    places = places if "sampling" in how else [place for place in places if place.endswith(".tfrecord")]
    firsts = ["write provenance.json"] * ("sampling" in how)  # when the folder of a run has no note yet
    for place in [*firsts, "rename 1.tfrecord", *rng.sample(places, min(num_kills, len(places)) - 1)]:
        result = killing.run(SCRIPT, flags, f"{place}:1")
        if result.code == 0:  # complete files are not made again
            continue
        assert result.code in (-signal.SIGKILL, 1), result  # 1: a worker of the first process was killed
        assert "Traceback" not in result.errors, result
        assert all(expected[name] == content for name, content in contents(broken, "*.tfrecord").items())
    result = killing.run(SCRIPT, flags)
    assert result.code == 0, result
    assert contents(broken) == expected
    assert killing.stray_files(broken) == []


def processes_of_group(number):
    return subprocess.run(["pgrep", "-g", str(number)], capture_output=True, text=True).stdout.split()


@pytest.mark.endurance
@pytest.mark.parametrize("how", [{}, SHARDED], ids=["serial", "sharded"])
@pytest.mark.parametrize("sign", SIGNALS)
def test_a_signal_to_the_first_process_leaves_neither_processes_nor_half_files(corpus, vocab_file, tmp_path, how, sign):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert killing.run(SCRIPT, flags_of(whole, corpus, vocab_file, **how)).code == 0
    expected, flags = contents(whole), flags_of(broken, corpus, vocab_file, **how)
    rng = random.Random(sign)
    for _ in range(2):
        command = killing.script_command(SCRIPT, flags)
        process = subprocess.Popen(command, env=script_environment(), stderr=subprocess.PIPE, start_new_session=True)
        time.sleep(rng.uniform(1, 3.5))  # before that, Python is still importing the handler
        process.send_signal(sign)
        errors = process.communicate(timeout=60)[1].decode()
        if process.returncode:
            assert process.returncode in (-sign, 128 + sign, 1), errors
        if sign != signal.SIGKILL:  # it does not wait until a starting process has its input
            assert "Traceback" not in errors
        for _ in range(100):
            if not (left := processes_of_group(process.pid)):
                break
            time.sleep(0.1)
        assert not left
        assert all(expected[name] == content for name, content in contents(broken, "*.tfrecord").items())
    assert killing.run(SCRIPT, flags).code == 0
    assert contents(broken) == expected
