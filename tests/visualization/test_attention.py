"""Conversion of attention to pages and JSON: rounding, words, and special characters."""

import base64
import hashlib
import html.parser
import json
import re

import numpy as np

from official_bert.visualization import attention
from official_bert.visualization.attention import as_json, merge_words, page
from tests.attention_views import HOSTILE, make_view
from tests.reports import data_of


class Elements(html.parser.HTMLParser):
    """The start tags of a page, in order, with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))


def stored_attention(data, view):
    if data["columns"]:
        shape = (*view.attention.shape[:-1], data["numKept"])
        decoded = (np.frombuffer(base64.b64decode(data[name]), "<u2") for name in ("attention", "columns"))
        values, columns = (array.reshape(shape) for array in decoded)
        found = np.zeros_like(view.attention)
        np.put_along_axis(found, columns.astype(int), values / data["largest"], axis=-1)
        return found
    values = np.frombuffer(base64.b64decode(data["attention"]), "<u2") / data["largest"]
    return values.reshape(view.attention.shape)


def naive_words(attention, word_indices):
    """Return the mean over one word's pieces of the sums over the other's, computed one number at a time."""
    num_words = max(word_indices) + 1
    merged = np.zeros([*attention.shape[:2], num_words, num_words])
    wordpieces = [[piece for piece, word in enumerate(word_indices) if word == wanted] for wanted in range(num_words)]
    for place in np.ndindex(*merged.shape):
        layer, head, source, target = place
        sums = [sum(float(attention[layer, head, i, j]) for j in wordpieces[target]) for i in wordpieces[source]]
        merged[place] = sum(sums) / len(sums)
    return merged


def test_words_are_sums_over_what_is_attended_to_and_means_over_what_attends():
    view = make_view(num_layers=2, num_heads=3)
    merged = merge_words(view.attention, view.word_indices)
    assert merged.shape[-1] == len(view.words) < len(view.tokens)
    np.testing.assert_allclose(merged, naive_words(view.attention, view.word_indices), atol=1e-6)
    np.testing.assert_allclose(merged.sum(axis=-1), 1, atol=1e-5)
    example = np.array([[0.6, 0.3, 0.1], [0, 0.5, 0.5], [0.2, 0.6, 0.2]])
    np.testing.assert_allclose(merge_words(example, [0, 1, 1]), [[0.6, 0.4], [0.1, 0.9]])


def test_json_holds_every_number_exactly():
    view = make_view()
    read = json.loads(json.dumps(as_json(view, merges_words=True)))
    np.testing.assert_array_equal(np.array(read["attention"], np.float32), view.attention)
    merged = merge_words(view.attention, view.word_indices)
    np.testing.assert_array_equal(np.array(read["word_attention"], np.float32), merged)
    assert "word_attention" not in as_json(view, merges_words=False)
    assert [read[name] for name in ("tokens", "words", "notes")] == [view.tokens, view.words, view.notes]


def test_the_page_rounds_as_it_says():
    view = make_view()
    data = data_of(page(view, layer=1, head=2, merges_words=True))
    assert np.abs(stored_attention(data, view) - view.attention).max() <= 0.5 / data["largest"] + 1e-9
    assert data["largest"] == 65535
    assert (data["layer"], data["head"], data["mergesWords"]) == (1, 2, True)


def test_a_page_of_a_long_text_has_the_largest_weights_and_says_so(monkeypatch, caplog):
    view = make_view(num_layers=2, num_heads=3)
    limit = 4 * 6 * len(view.tokens) * 3  # three of each row
    assert limit < 2 * view.attention.size
    monkeypatch.setattr(attention, "_MOST_BYTES", limit)
    data = data_of(page(view, layer=1, head=2, merges_words=False))
    smallest_kept = np.sort(view.attention)[..., -3:-2]
    expected = np.where(view.attention >= smallest_kept, view.attention, 0)
    assert np.abs(stored_attention(data, view) - expected).max() <= 0.5 / data["largest"] + 1e-9
    assert "This page has the 3 largest weights from each wordpiece" in data["notes"][-1]
    assert data["notes"][-1] in caplog.text and len(data["notes"]) == len(view.notes) + 1


def test_no_text_becomes_markup():
    view = make_view(word=HOSTILE, notes=[HOSTILE], guess=HOSTILE)
    text = page(view, layer=0, head=0, merges_words=False)
    data = data_of(text)
    assert Elements(text).tags == Elements(page(make_view(), layer=0, head=0, merges_words=False)).tags
    assert data["words"]["texts"] == view.words
    assert data["notes"] == [HOSTILE]
    assert data["predictions"][1][0][0] == HOSTILE


def test_the_page_may_run_its_own_script_and_load_nothing():
    text = page(make_view(), layer=0, head=0, merges_words=False)
    (policy,) = [attributes["content"] for _, attributes in Elements(text).tags if "http-equiv" in attributes]
    directives = dict(directive.strip().split(" ", 1) for directive in policy.split(";"))
    assert directives.pop("default-src") == directives.pop("base-uri") == directives.pop("form-action") == "'none'"
    own = re.findall(r"<(script|style)>(.*?)</\1>", text, re.DOTALL)
    hashed = {tag: base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for tag, code in own}
    hashes = {f"{tag}-src": f"'sha256-{value}'" for tag, value in hashed.items()}
    assert directives == hashes
    forbidden = r"(src|href|action)=|https?:|url\(|@import|import\(|innerHTML|outerHTML|insertAdjacent|eval"
    assert not re.search(forbidden, text)
