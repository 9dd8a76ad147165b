"""Shared by the tests of tasks."""

import functools

import pytest


@pytest.fixture(scope="module")
def tokenizer(request, tokenizer):
    """The usual tokenizer; for tests of servables, its graph is traced once, and it cannot be pickled."""
    if request.module.__name__.endswith("test_servable"):
        tokenizer.in_graph = functools.cache(tokenizer.in_graph)
    return tokenizer
