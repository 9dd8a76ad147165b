"""Training runs killed at named places or at any moment end bit for bit like uninterrupted runs.

Each run is a process of the real script. After a kill the same command is restarted, and often killed again.
"""

import itertools
import random
import zlib

import pytest

from official_bert.serving.versions import check_whole, complete_versions
from tests.conftest import endurance, run_cold
from tests.faults import killing
from tests.training.short_runs import runs_of_all_tasks

# Extra flags of the short runs: together they save, prune, keep the best, evaluate, predict and export, accumulate
# gradients and train in mixed precision.
SAVING = {"save_checkpoints_steps": 2, "keep_checkpoint_max": 2, "log_steps": 3}
EXPORTING = {"do_export": True, "max_seq_length": 24}
VARIANTS = {
    "pretraining": {"gradient_accumulation_steps": 2}, "classification": EXPORTING,
    "question answering": {"mixed_precision": "bfloat16"}, "tagging": {"mixed_precision": "bfloat16"},
    "multiple choice": EXPORTING, "sentence encoder": EXPORTING,
}  # fmt: skip
STARTS_IN_A_FOLDER = 5  # after these a run may finish


@pytest.fixture(scope="module")
def runs(tmp_path_factory, one_layer_config_file, model_dir, records_file, vocab_file):
    """A short run with dropout for each task: name to command and flags."""
    model = {"bert_config_file": one_layer_config_file, "init_checkpoint": str(model_dir / "bert_model.ckpt")}
    short = runs_of_all_tasks(tmp_path_factory.mktemp("data"), model, records_file, vocab_file)
    return {task: (script, {**flags, **SAVING, **VARIANTS[task]}) for task, (script, flags) in short.items()}


def in_folder(flags, folder):
    folder.mkdir(exist_ok=True)
    more = {"export_dir": folder / "export"} if flags.get("do_export") else {}
    return {**flags, "output_dir": folder / "out", **more}


def assert_ended_as(folder, whole):
    """Assert that the run in a folder ended like the uninterrupted one, and its exports are complete."""
    killing.assert_same_end(folder / "out", whole / "out")
    assert killing.stray_files(folder) == []
    exports = [str(folder / "export" / str(number)) for number in complete_exports(folder)]
    assert bool(exports) == bool(complete_exports(whole))
    for path in exports:
        check_whole(path)


def complete_exports(folder):
    return complete_versions(str(folder / "export")) if (folder / "export").exists() else []


def kind_of(place):
    return place.partition(" ")[0]


def chosen_places(passed, rng):
    """Yield places endlessly, one of each kind in turn, with the number of the pass at which to kill."""
    kinds = sorted({kind_of(place) for place in passed})
    rng.shuffle(kinds)
    for kind in itertools.cycle(kinds):
        place = rng.choice(sorted(place for place in passed if kind_of(place) == kind))
        yield f"{place}:{rng.randint(1, passed[place])}"


def kill_and_resume(script, flags, folder, *, seed, num_kills, num_by_time=0):
    """Kill and resume runs at different places; all must end like an uninterrupted run.

    Returns:
      The kinds of places where runs were killed.
    """
    rng = random.Random(zlib.crc32(f"{script} {seed}".encode()))
    whole = folder / "whole"
    whole.mkdir()
    passed = killing.places(script, in_folder(flags, whole), folder)
    places = chosen_places(passed, rng)
    killed_at, numbers = [], itertools.count()
    while len(killed_at) < num_kills:
        broken = folder / f"broken{next(numbers)}"
        for _ in range(STARTS_IN_A_FOLDER):
            if len(killed_at) == num_kills:
                break
            if len(killed_at) < num_by_time:
                if not killing.is_killed_after(script, in_folder(flags, broken), rng.uniform(1, 12)):
                    break
                killed_at.append("any moment")
                continue
            place = next(places)
            result = killing.run(script, in_folder(flags, broken), place)
            if result.code == 0:  # it resumed from a point after that place
                break
            killing.assert_killed(result)
            killed_at.append(kind_of(place.rpartition(":")[0]))
        result = killing.run(script, in_folder(flags, broken))
        assert result.code == 0, (killed_at, result)
        assert_ended_as(broken, whole)
    return killed_at


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "num_kills", "num_by_time"), [("pretraining", 2, 0), *endurance(*((task, 12, 3) for task in VARIANTS))]
)
def test_runs_killed_at_any_place_or_moment_end_as_whole_ones(runs, tmp_path, task, num_kills, num_by_time):
    killed_at = kill_and_resume(*runs[task], tmp_path, seed=2, num_kills=num_kills, num_by_time=num_by_time)
    assert len(killed_at) == num_kills
    print(task, sorted(killed_at))


@pytest.mark.endurance
@pytest.mark.multi_process
def test_two_workers_killed_while_the_first_one_writes_end_as_whole_ones(runs, tmp_path, monkeypatch):
    _, flags = runs["classification"]
    flags = {name: value for name, value in flags.items() if name not in ("do_export", "do_predict")}

    def start(folder, kill_at=""):
        monkeypatch.setenv(killing.KILL_AT_VARIABLE, kill_at)
        command = killing.script_command("run_classifier", {**flags, "output_dir": folder})
        return run_cold("launch_workers", "--", *command, num_workers=2)

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert start(whole).code == 0
    for place in ("rename model.ckpt-2.index:1", "write checkpoint:2", "rename evaluations.json:1"):
        result = start(broken, place)
        assert result.code == 1, result
        assert "was ended by SIGKILL" in result.errors, result
        assert "Traceback" not in result.output, result
    result = start(broken)
    assert result.code == 0, result
    killing.assert_same_end(broken, whole)
