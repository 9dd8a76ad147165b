"""The page of a text's attention in a real browser: a headless Chromium."""

import dataclasses

import numpy as np
import pytest

from official_bert.visualization.attention import Attributions, merge_words, page
from tests.attention_views import HOSTILE, make_view
from tests.browser_fixtures import OpenedPage
from tests.conftest import endurance

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SHOWN = 0.0005 + 1e-5  # three decimals of already rounded numbers


class Opened(OpenedPage):
    """The page of a text's attention."""

    @property
    def title(self):
        return self.page.text_content("#head-title")

    def texts(self, side):
        return self.page.locator(f"#{side} .name").all_text_contents()

    def numbers(self, side):
        return [float(number) for number in self.page.locator(f"#{side} .number").all_text_contents()]

    def point_at(self, side, index):
        self.page.locator(f"#{side} button").nth(index).hover()


@pytest.fixture
def view():
    return make_view()


@pytest.fixture
def opened(browser, tmp_path, view):
    opened = Opened(browser, tmp_path / "page.html", page(view, layer=0, head=0, merges_words=False))
    yield opened
    opened.close()


def test_a_token_shows_its_numbers_in_both_directions(opened, view):
    assert opened.title == "Layer 0, head 0"
    assert opened.texts("from") == opened.texts("to") == view.tokens
    opened.point_at("from", 3)
    np.testing.assert_allclose(opened.numbers("to"), view.attention[0, 0, 3], atol=SHOWN)
    strongest = opened.page.locator("#strongest td.name").all_text_contents()
    assert strongest[0] == view.tokens[view.attention[0, 0, 3].argmax()]
    opened.point_at("to", 5)
    np.testing.assert_allclose(opened.numbers("from"), view.attention[0, 0, :, 5], atol=SHOWN)
    opened.page.mouse.move(5, 5)
    assert opened.page.locator("#from .number").all_text_contents() == [""] * len(view.tokens)


def test_a_click_keeps_a_token_and_another_lets_go(opened, view):
    opened.point_at("from", 2)
    opened.page.mouse.down()
    opened.page.mouse.up()
    opened.page.mouse.move(5, 5)
    opened.page.locator("h1").click()
    np.testing.assert_allclose(opened.numbers("to"), view.attention[0, 0, 2], atol=SHOWN)
    opened.page.locator("#from button").nth(2).click()
    opened.page.mouse.move(5, 5)
    assert opened.page.locator("#to .number").first.text_content() == ""


def test_heads_are_chosen_by_mouse_keyboard_and_lists(opened, view):
    opened.page.locator("#overview button").nth(2 * 4 + 1).click()
    assert opened.title == "Layer 2, head 1"
    opened.page.locator("#from button").nth(4).focus()
    for key, layer, head in (
        ("ArrowUp", 1, 1),
        ("ArrowRight", 1, 2),
        ("ArrowRight", 1, 3),
        ("ArrowRight", 1, 3),  # the last one
        ("ArrowDown", 2, 3),
        ("ArrowDown", 2, 3),
        ("ArrowLeft", 2, 2),
    ):
        opened.page.keyboard.press(key)
        assert opened.title == f"Layer {layer}, head {head}"
        np.testing.assert_allclose(opened.numbers("to"), view.attention[layer, head, 4], atol=SHOWN)
        assert opened.page.input_value("#layer") == str(layer)
        current = opened.page.locator("#overview [aria-current=true]")
        assert current.get_attribute("aria-label") == f"layer {layer}, head {head}"
    opened.page.select_option("#layer", "0")
    opened.page.select_option("#head", "1")
    assert opened.title == "Layer 0, head 1"
    opened.point_at("from", 1)
    np.testing.assert_allclose(opened.numbers("to"), view.attention[0, 1, 1], atol=SHOWN)


def test_words_are_merged_and_split_again(opened, view):
    merged = merge_words(view.attention, view.word_indices)
    opened.page.check("#merge")
    assert opened.texts("to") == view.words
    opened.page.keyboard.press("ArrowRight")
    for index in (2, 4):  # a word of two pieces, and the [SEP]
        opened.point_at("from", index)
        np.testing.assert_allclose(opened.numbers("to"), merged[0, 1, index], atol=SHOWN)
    assert opened.page.locator("#overview canvas").first.get_attribute("width") == str(len(view.words))
    opened.page.uncheck("#merge")
    assert opened.texts("to") == view.tokens


def test_lines_are_drawn_where_attention_is(opened, view):
    opened.point_at("from", 3)
    shown = opened.page.evaluate(
        """(from) => {
          const canvas = document.getElementById("lines"), count = document.querySelectorAll("#to button").length;
          const image = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          const middle = (row) => (row + 0.5) * canvas.height / count, x = 0.9 * canvas.width;
          const y = (to) => 0.9 * middle(to) + 0.1 * middle(from); // of the line from one to the other
          return Array.from({ length: count }, (_, to) =>
            image.data[4 * (Math.floor(y(to)) * canvas.width + Math.floor(x)) + 3] / 255);
        }""",
        3,
    )
    np.testing.assert_allclose(shown, np.sqrt(view.attention[0, 0, 3]), atol=0.1)


def test_predictions_stand_beside_and_follow_the_token(opened, view):
    rows = opened.page.locator("#predictions tr")
    assert rows.count() == sum(guesses is not None for guesses in view.predictions)
    assert rows.first.text_content() == "harbourthe 0.500guess0 0.100guess1 0.090guess2 0.080guess3 0.070"
    opened.point_at("from", 1)
    assert opened.page.locator("#predictions [data-chosen=true]").count() == 1
    opened.page.check("#merge")
    opened.point_at("from", 2)
    chosen = opened.page.locator("#predictions tr[data-chosen=true] td:first-child").all_text_contents()
    assert chosen == ["word1", "##s"]


def test_without_predictions_a_note_says_why(browser, tmp_path):
    view = make_view(has_predictions=False, notes=["The checkpoint has no masked-LM head."])
    opened = Opened(browser, tmp_path / "page.html", page(view, layer=0, head=0, merges_words=False))
    assert not opened.page.is_visible("#predictions-section")
    assert opened.page.locator("#notes li").all_text_contents() == view.notes
    opened.close()


def test_attributions_are_shown_by_method_and_unit(browser, tmp_path, view):
    values = np.linspace(-1, 2, len(view.tokens)).astype(np.float32)
    explained = dataclasses.replace(view, attributions=Attributions("good <b>", values, -values))
    opened = Opened(browser, tmp_path / "page.html", page(explained, layer=0, head=0, merges_words=False))
    chips = opened.page.locator("#attributions span")
    assert opened.page.text_content("#attributions-title") == "What decided: “good <b>”"

    def shown():
        return [float(chip.get_attribute("title")) for chip in chips.all()]

    assert chips.all_text_contents() == list(view.tokens)
    np.testing.assert_allclose(shown(), -values, rtol=0.01)
    opened.page.select_option("#method", "gradient_times_input")
    np.testing.assert_allclose(shown(), values, rtol=0.01)
    opened.page.check("#merge")
    assert chips.all_text_contents() == list(view.words)
    np.testing.assert_allclose(shown(), np.bincount(view.word_indices, values), rtol=0.01)
    opened.close()
    plain = Opened(browser, tmp_path / "plain.html", page(view, layer=0, head=0, merges_words=False))
    assert not plain.page.is_visible("#attributions-section")
    plain.close()


@pytest.mark.endurance
def test_light_and_dark_are_the_systems_until_the_button_is_pressed(browser, tmp_path, view):
    light, dark = "rgb(247, 248, 250)", "rgb(20, 23, 28)"
    text = page(view, layer=0, head=0, merges_words=False)
    for scheme, colors in (("light", [light, dark, light]), ("dark", [dark, light, dark])):
        opened = Opened(browser, tmp_path / f"{scheme}.html", text, color_scheme=scheme)
        found = [opened.background()]
        for _ in range(2):
            opened.page.click("#theme")
            found.append(opened.background())
        assert found == colors
        opened.close()


@pytest.mark.parametrize("text", [HOSTILE[0], *endurance(*HOSTILE[1:])])
def test_a_hostile_text_is_text(browser, tmp_path, text):
    view = make_view(word=text, notes=[text], guess=text)
    opened = Opened(browser, tmp_path / "page.html", page(view, layer=0, head=0, merges_words=False))
    opened.point_at("from", 1)
    assert opened.texts("from")[1] == text
    assert opened.page.locator("#notes li").text_content() == text
    assert opened.page.locator("#predictions .guess").first.text_content() == f"{text} 0.500"
    assert opened.page.title().startswith("Attention: ")
    assert opened.page.locator("img").count() == 0
    assert opened.page.locator("script").count() == 2
    opened.close()


def test_on_a_narrow_screen_nothing_is_wider_than_it(browser, tmp_path, view):
    opened = Opened(browser, tmp_path / "page.html", page(view, layer=0, head=0, merges_words=False))
    opened.page.set_viewport_size({"width": 360, "height": 700})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.endurance
@pytest.mark.parametrize(("num_words", "length"), [(94, 128), (379, 508)])
def test_the_page_of_144_heads_opens(browser, tmp_path, num_words, length):
    view = make_view(num_layers=12, num_heads=12, num_words=num_words)
    assert len(view.tokens) == length
    opened = Opened(browser, tmp_path / "page.html", page(view, layer=0, head=1, merges_words=False))
    opened.point_at("from", 2)
    weights = view.attention[0, 1, 2]
    kept = np.where(weights >= np.sort(weights)[-25], weights, 0) if length > 128 else weights
    np.testing.assert_allclose(opened.numbers("to"), kept, atol=SHOWN)
    opened.close()
    assert (tmp_path / "page.html").stat().st_size < 10 * 2**20
