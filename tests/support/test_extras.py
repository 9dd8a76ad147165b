"""Packages that are installed, or treated as missing."""

import sys

import pytest

from official_bert.support.errors import blocked_imports


def test_a_package_is_left_out_of_the_imports_of_a_block(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "peer_of_keras.py").touch()
    with pytest.raises(ImportError), blocked_imports("peer_of_keras", "json"):
        import json  # noqa: F401  # is imported already, and stays

        import peer_of_keras
    import peer_of_keras  # noqa: F401

    del sys.modules["peer_of_keras"]
