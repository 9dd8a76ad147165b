"""Training with JAX: the reference's and TensorFlow's steps on any number of devices, and runs that go on."""

import signal
import subprocess
import sys

import numpy as np
import pytest

from official_bert.support.files import KILL_AT_VARIABLE
from official_bert.training.devices import open_cluster
from tests.conftest import ROOT, run_here, script_command, script_environment
from tests.faults.killing import scalars
from tests.record_files import arrays_of
from tests.training.engine_steps import MODEL, ROWS, ten_steps
from tests.training.short_runs import pretraining_flags
from tests.training.sum_runs import begun
from tests.training.trajectory import assert_follows_the_reference, golden_trajectory

pytestmark = pytest.mark.slow
SHORT = ("devices", "dropout on 4", "dropout recomputed", "float16")


def on_jax(command, folder, code=0, **variables):
    """Run a command on JAX, with four virtual devices and compiled steps that are kept in a folder."""
    settings = {
        "KERAS_BACKEND": "jax", "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5",
    }  # fmt: skip
    environment = script_environment() | settings | variables
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, cwd=ROOT)
    assert process.returncode == code, process.stdout[-6000:] + process.stderr[-6000:]


@pytest.fixture(scope="module")
def steps_of(tmp_path_factory):
    """Return a function from the names of rows to their arrays, {row: {name: array}}, of one process."""
    folder, found = tmp_path_factory.mktemp("steps"), {}

    def steps_of(*names):
        if not found.keys() >= set(names):
            on_jax([sys.executable, "-m", "tests.training.engine_steps", str(folder / "steps.npz"), *names], folder)
            with np.load(folder / "steps.npz") as arrays:
                for name in arrays.files:
                    row, _, name_in_row = name.partition("|")
                    found.setdefault(row, {})[name_in_row] = arrays[name]
        return found

    return steps_of


@pytest.fixture(scope="module")
def golden():
    return golden_trajectory()


@pytest.mark.endurance
def test_two_devices_of_three_parts_each_follow_the_reference(steps_of, golden):
    found = steps_of("golden")["golden"]
    variables = {name: array for name, array in found.items() if "/" in name}
    assert_follows_the_reference(found, variables, golden, MODEL)


def test_all_devices_are_used_unless_a_flag_says_one(steps_of):
    assert steps_of(*SHORT)["devices"]["numbers"].tolist() == [4, 4, 1, 1]


def assert_close(found, expected, loss):
    """Compare losses with a tolerance, and weights and slots with another."""
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        if "/" in name:
            tolerance = 3e-5 if "key/bias" in name else 1e-5  # softmax ignores it: its gradients are rounding errors
            np.testing.assert_allclose(found[name], array, atol=tolerance, err_msg=name)
        elif name.endswith("loss"):
            np.testing.assert_allclose(found[name], array, rtol=loss, atol=loss, err_msg=name)


@pytest.mark.endurance  # test_keras_backends.py compares the losses of all tasks
@pytest.mark.parametrize("name", ROWS)
def test_ten_steps_equal_those_of_tensorflow(steps_of, name):
    """With frozen layers, LoRA, a teacher, accumulation; some on several devices of JAX."""
    found = steps_of(*ROWS)[name]
    expected = ten_steps(ROWS[name](), open_cluster())
    assert_close(found, expected, loss=1e-5)
    assert abs(expected["loss"][9] - expected["loss"][0]) > 1e-3


def test_dropout_depends_on_the_step_but_neither_on_devices_nor_recomputation_nor_history(steps_of):
    found = steps_of(*SHORT)
    run, first, again, other = (
        {name[2:]: array for name, array in found["dropout on 4"].items() if name.startswith(f"{number} ")}
        for number in range(4)
    )
    assert_close(run, found["dropout recomputed"], loss=1e-6)  # on one device
    for name, array in first.items():
        np.testing.assert_array_equal(again[name], array, err_msg=name)
    assert abs(other["loss"][0] - first["loss"][0]) > 1e-3  # same weights, other masks


def test_float16_stays_near_the_reference_and_overflows_change_nothing(steps_of, golden):
    found = steps_of(*SHORT)["float16"]
    np.testing.assert_allclose(found["loss"], golden["loss"][:5], rtol=5e-3)
    np.testing.assert_allclose(found["gradient_norm"][0], golden["grad_global_norm"][0], rtol=2e-2)
    assert found["later overflow_steps"].tolist() == [1, 1]
    assert found["later loss_scale"].tolist() == [2.0**30, 2.0**29]
    assert found["changed"].tolist() == []


def test_runs_are_saved_stopped_and_repaired_as_with_tensorflow(tmp_path):
    """The tests of these, in a process whose Keras computes with JAX."""
    names = ("test_save_and_stop.py", "test_interruptions.py")
    chosen = "not_finite or skip or sigterm_stops or while_saving"
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-m", "", "-k", chosen]
    files = [str(ROOT / "tests" / "training" / name) for name in names]
    on_jax([sys.executable, "-m", "pytest", *options, *files, f"--basetemp={tmp_path / 'runs'}"], tmp_path)


@pytest.mark.endurance
def test_a_run_goes_on_with_the_other_library_and_back(quiet_model, records_file, tmp_path):
    """JAX continues a run of TensorFlow until it is killed; that runs go on exactly is tested above."""
    flags = pretraining_flags(records_file, MODEL, **quiet_model, num_train_steps=6, save_checkpoints_steps=1)
    flags |= {"iterations_per_loop": 1, "log_steps": 1, "keep_checkpoint_max": 0, "num_warmup_steps": 2}
    whole = tmp_path / "whole"
    run_here("run_pretraining", **flags, output_dir=whole)
    folder = begun(whole, 3)
    command = script_command("run_pretraining", {**flags, "backend": "jax", "output_dir": folder})
    on_jax(command, tmp_path, code=-signal.SIGKILL, **{KILL_AT_VARIABLE: "step:3"})
    run_here("run_pretraining", **flags, output_dir=folder)
    for step in (5, 6):
        assert_close(*(arrays_of(each / f"model.ckpt-{step}") for each in (folder, whole)), loss=0)
    for line, expected_line in zip(scalars(folder), scalars(whole), strict=True):
        assert line.pop("split") == expected_line.pop("split")
        assert line == pytest.approx(expected_line, rel=1e-4)
