"""Records which functions of `os` are called, and in which order."""

import os


def recorded(monkeypatch, *names):
    """What is called of `os`, in order: the name and the last part of the path, that of the file on the disk."""
    calls = []

    def record(name):
        real = getattr(os, name)

        def call(target, *others, **options):
            path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else (others or [target])[0]
            calls.append((name, os.path.basename(path).partition(".partial-")[0].lstrip(".")))
            return real(target, *others, **options)

        monkeypatch.setattr(os, name, call)

    for name in names:
        record(name)
    return calls
