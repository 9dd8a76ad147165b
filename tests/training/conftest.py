"""Shared by the tests of training."""

import signal

import pytest


@pytest.fixture
def restored_handler():
    """Let a test send SIGTERM, which training handles until the process ends."""
    previous = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, previous)
