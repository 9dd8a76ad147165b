"""`view_attention`: output files and errors."""

import io
import json
import sys

import numpy as np
import pytest

from official_bert.config.bert_config import BertConfig
from official_bert.inference.attention_reader import AttentionReader
from official_bert.support.errors import install_command
from official_bert.tokenization import FullTokenizer
from official_bert.visualization.attention import as_json, merge_words, page
from tests.conftest import GOLDEN, assert_refused, run_here

pytestmark = pytest.mark.slow

VOCAB_FILE = GOLDEN / "inputs" / "vocab.txt"
TEXT, TEXT_B = "Who woke before the town?", "The unbelievable harbour costs $5, not $6."


@pytest.fixture
def flags(files_of_model, tmp_path):
    return {**files_of_model, "text": TEXT, "text_b": TEXT_B, "output_file": str(tmp_path / "out")}


@pytest.fixture(scope="module")
def view(files_of_model):
    bert_config = BertConfig.from_json_file(files_of_model["bert_config_file"])
    tokenizer = FullTokenizer(files_of_model["vocab_file"])
    return AttentionReader(bert_config, tokenizer, files_of_model["init_checkpoint"], top_k=2)(TEXT, TEXT_B)


def test_the_page_starts_where_the_flags_say(flags, view, tmp_path):
    run_here("view_attention", **flags, top_k=2)
    assert (tmp_path / "out").read_text() == page(view, layer=0, head=0, merges_words=False)
    run_here("view_attention", **flags, top_k=2, layer=-1, head=1, merge_words=True)
    assert (tmp_path / "out").read_text() == page(view, layer=2, head=1, merges_words=True)


def test_json_has_the_numbers_of_the_encoder(flags, view, tmp_path):
    run_here("view_attention", **flags, top_k=2, format="json", merge_words=True)
    read = json.loads((tmp_path / "out").read_text())
    np.testing.assert_array_equal(np.array(read["attention"], np.float32), view.attention)
    assert read == json.loads(json.dumps(as_json(view, merges_words=True)))


class TestImages:
    @pytest.fixture(autouse=True)
    def matplotlib(self):
        pytest.importorskip("matplotlib", reason="matplotlib is not installed")

    def test_flags_choose_what_is_drawn(self, flags, view, tmp_path):
        from official_bert.visualization import attention

        overview, head = io.BytesIO(), io.BytesIO()
        attention.draw_overview(view, overview, merges_words=False)
        attention.draw_head(view, head, layer=1, head=2, merges_words=True)
        for changes, expected in (({}, overview), ({"layer": -2, "head": 2, "merge_words": True}, head)):
            run_here("view_attention", **flags, **changes, format="png")
            assert (tmp_path / "out").read_bytes() == expected.getvalue()

    def test_shades_are_the_weights(self, view, monkeypatch):
        from matplotlib.axes import Axes

        from official_bert.visualization import attention

        drawn, imshow = [], Axes.imshow
        monkeypatch.setattr(Axes, "imshow", lambda axes, rows, **how: drawn.append(rows) or imshow(axes, rows, **how))
        for merges_words in (False, True):
            attention.draw_head(view, io.BytesIO(), layer=0, head=3, merges_words=merges_words)
        attention.draw_overview(view, io.BytesIO(), merges_words=False)
        head, words, overview = drawn
        np.testing.assert_array_equal(head, view.attention[0, 3])
        np.testing.assert_array_equal(words, merge_words(view.attention[0, 3], view.word_indices))
        length = len(view.tokens)
        step = (overview.shape[0] + round(0.1 * length)) // 3
        for layer, number in np.ndindex(3, 4):
            tile = overview[layer * step :, number * step :][:length, :length]
            np.testing.assert_array_equal(tile, np.sqrt(view.attention[layer, number]))


def test_without_matplotlib_the_message_says_what_to_install(flags, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = f"matplotlib is not installed; run: {install_command('plots')}"
    assert_refused("view_attention", {**flags, "format": "png"}, message)
    run_here("view_attention", **flags)  # a page needs no extras


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer": 0, "head": 4}, "--head=4: there is no head 4 in a model of 4 heads"),
        ({"layer": 0}, "--layer needs --head; give both, or neither"),
        ({"layer": 0, "head": 0, "format": "json"}, "--layer needs --format=html or png"),
        ({"text": "  "}, "--text is empty; give a text"),
        ({"text": "\u0000"}, "--text='\\x00' has no wordpieces"),
        ({"output_file": VOCAB_FILE}, "is also an input"),
    ],
)
def test_mistakes_are_one_message(flags, changes, message):
    assert_refused("view_attention", {**flags, **changes}, message)
