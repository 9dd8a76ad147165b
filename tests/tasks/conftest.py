"""Shared by the tests of tasks."""

import functools

import pytest

from official_bert.tokenization import FullTokenizer


@pytest.fixture(scope="session")
def tokenizer(vocab_file):
    """A tokenizer whose graph is traced once for all servables."""
    tokenizer = FullTokenizer(vocab_file)
    tokenizer.in_graph = functools.cache(tokenizer.in_graph)
    return tokenizer
