"""Records calls of functions of `os`, in order, and lets them fail."""

import errno
import os


def fail_after(patch, name, allowed, number=errno.ENOSPC):
    """Let a function of `os` fail after some calls, as on a full disk."""
    really, left = getattr(os, name), [None] * allowed

    def failing(*arguments):
        if not left:
            raise OSError(number, os.strerror(number))
        left.pop()
        return really(*arguments)

    patch.setattr(os, name, failing)


def recorded(monkeypatch, *names):
    """Return the list of calls, in order: function name and base name of the real path."""
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
