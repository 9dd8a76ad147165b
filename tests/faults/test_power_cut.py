"""Power cuts: unflushed data may be lost in any order, and the run resumes from its last checkpoint.

A run's changes to its folder are recorded: bytes flushed (fsync), names added and removed, folders flushed. A power cut
after each of them leaves everything flushed, and any subset of later name changes. A file whose bytes were not flushed
is empty or truncated.
"""

import itertools
import os
import shutil

import pytest

from official_bert.checkpoints.bundle import is_whole
from official_bert.checkpoints.checkpoint_folder import BestCheckpoint, CheckpointFolder
from official_bert.checkpoints.locate import latest_checkpoint, step_of
from tests.conftest import endurance
from tests.training.sum_runs import assert_same_end, train_and_evaluate

pytestmark = pytest.mark.slow


class Disk:
    """The flushed and unflushed state of the files below a folder; `cuts` are folders after a power cut.

    Attributes:
      cuts: pairs of the last saved checkpoint's step, -1 for none, and the contents by path below the folder.
    """

    def __init__(self, folder, patch):
        self._folder = os.path.realpath(folder)
        self._flushed = {}  # contents by file number, since names change
        self._files = {}  # number by path, as seen by the running system
        self._names = {}  # number by path, as flushed to disk
        self._waiting = []  # unflushed name changes: (path, number or None)
        self._saved = -1
        self._numbers = itertools.count()
        self.cuts = []
        recorders = {"fsync": self._flush, "replace": self._rename, "remove": self._remove}
        for name, record in recorders.items():
            patch.setattr(os, name, self._recording(getattr(os, name), record))
        really_save = CheckpointFolder.save

        def save(checkpoints, step, tensors, **options):
            prefix = really_save(checkpoints, step, tensors, **options)
            if os.path.dirname(prefix) == str(folder):
                self._saved = step
            return prefix

        patch.setattr(CheckpointFolder, "save", save)

    def _recording(self, really, record):
        def recorded(first, *more):
            if really is not os.fsync:
                really(first, *more)
            record(first, *more)
            self.cut()

        return recorded

    def _below(self, path):
        path = os.path.realpath(path)
        return os.path.relpath(path, self._folder) if path.startswith(self._folder) else None

    def _flush(self, descriptor):
        path = self._below(f"/proc/self/fd/{descriptor}")
        if path is None:
            return
        if not os.path.isdir(os.path.join(self._folder, path)):
            with open(f"/proc/self/fd/{descriptor}", "rb") as file:
                self._flushed[self._number(path)] = file.read()
            return
        for changed, number in self._waiting:
            if os.path.dirname(changed) == path.removeprefix("."):
                self._name(self._names, changed, number)
        self._waiting = [change for change in self._waiting if os.path.dirname(change[0]) != path.removeprefix(".")]

    def _number(self, path):
        if path not in self._files:
            self._files[path] = next(self._numbers)
            self._waiting.append((path, self._files[path]))
        return self._files[path]

    @staticmethod
    def _name(names, path, number):
        if number is None:
            names.pop(path, None)
        else:
            names[path] = number

    def _rename(self, source, target):
        source, target = self._below(source), self._below(target)
        number = self._number(source)
        del self._files[source]
        self._files[target] = number
        self._waiting += [(target, number), (source, None)]

    def _remove(self, path):
        path = self._below(path)
        if self._files.pop(path, None) is not None:
            self._waiting.append((path, None))

    def cut(self):
        """Add possible results of a power cut now: with no waiting change, all, the first few, one, or all but one."""
        changes = [change for change in self._waiting if ".partial-" not in change[0]]
        count = len(changes)
        kept = {tuple(range(number)) for number in range(count + 1)}
        kept |= {(number,) for number in range(count)}
        kept |= {tuple(other for other in range(count) if other != number) for number in range(count)}
        for numbers in sorted(kept):
            names = dict(self._names)
            for number in numbers:
                self._name(names, *changes[number])
            visible = {path: number for path, number in names.items() if ".partial-" not in path}
            for lose in (lambda content: b"", lambda content: content[: len(content) // 2]):
                contents = {path: self._content(path, number, lose) for path, number in visible.items()}
                if (self._saved, contents) not in self.cuts:
                    self.cuts.append((self._saved, contents))

    def _content(self, path, number, lose):
        """Return what remains of a file: its flushed bytes, otherwise a truncated content."""
        if number in self._flushed:
            return self._flushed[number]
        present = os.path.join(self._folder, path)
        return lose(open(present, "rb").read() if os.path.isfile(present) else b"")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    whole = tmp_path_factory.mktemp("power") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(whole, patch)
        assert train_and_evaluate(whole) == (True, [2, 4, 6])
        disk.cut()
    return whole, disk.cuts


def put(contents, folder):
    for path, content in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def test_a_power_cut_leaves_the_last_checkpoint_that_was_saved(recorded, tmp_path):
    cuts = recorded[1]
    assert len(cuts) > 30
    assert {saved for saved, _ in cuts} == {-1, 0, 3, 6}
    for number, (saved, contents) in enumerate(cuts):
        folder = tmp_path / str(number)
        folder.mkdir()
        put(contents, folder)
        latest = latest_checkpoint(str(folder))
        assert saved == -1 or (latest and step_of(latest) >= saved), contents.keys()
        assert latest is None or is_whole(latest), contents.keys()
        BestCheckpoint(str(folder))
        shutil.rmtree(folder)


@pytest.mark.parametrize("step", [12, *endurance(1)])
def test_a_run_resumes_after_any_power_cut_with_the_same_result(recorded, tmp_path, step):
    whole, cuts = recorded
    for number, (_, contents) in enumerate(cuts[::-step]):  # the last is that of a finished run
        folder = tmp_path / str(number)
        put(contents, folder)
        assert train_and_evaluate(folder)[0], contents.keys()
        assert_same_end(folder, whole)
        shutil.rmtree(folder)
    print(len(cuts), "power cuts")
