"""The page of a text's attention in a real browser: a headless Chromium."""

import dataclasses

import numpy as np
import pytest

from official_bert.visualization import attention
from official_bert.visualization.attention import Attributions, merge_words
from tests.attention_views import HOSTILE, make_view
from tests.browser_fixtures import assert_is_narrow, texts

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SHOWN = 0.0005 + 1e-5  # three decimals of already rounded numbers


@pytest.fixture
def view():
    return make_view()


@pytest.fixture
def opened(open_page, view):
    return open_page(html_of(view))


def html_of(view, head=0):
    return attention.page(view, layer=0, head=head, merges_words=False)


def point_at(page, side, index):
    page.locator(f"#{side} button").nth(index).hover()


def assert_shows(page, side, expected):
    np.testing.assert_allclose([float(text) for text in texts(page, f"#{side} .number")], expected, atol=SHOWN)


def test_a_token_shows_its_numbers_in_both_directions_and_a_click_keeps_it(opened, view):
    assert opened.text_content("#head-title") == "Layer 0, head 0"
    assert texts(opened, "#from .name") == texts(opened, "#to .name") == view.tokens
    point_at(opened, "from", 3)
    assert_shows(opened, "to", view.attention[0, 0, 3])
    assert texts(opened, "#strongest td.name")[0] == view.tokens[view.attention[0, 0, 3].argmax()]
    point_at(opened, "to", 5)
    assert_shows(opened, "from", view.attention[0, 0, :, 5])
    opened.mouse.move(5, 5)
    assert texts(opened, "#from .number") == [""] * len(view.tokens)
    opened.locator("#from button").nth(2).click()
    opened.mouse.move(5, 5)
    opened.locator("h1").click()
    assert_shows(opened, "to", view.attention[0, 0, 2])
    opened.locator("#from button").nth(2).click()
    opened.mouse.move(5, 5)
    assert texts(opened, "#to .number") == [""] * len(view.tokens)


def test_lines_are_drawn_where_attention_is(opened, view):
    point_at(opened, "from", 3)
    shown = opened.evaluate(
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
    opened.set_viewport_size({"width": 360, "height": 700})
    assert_is_narrow(opened, 360)


def test_heads_are_chosen_by_mouse_keyboard_and_lists(opened, view):
    opened.locator("#overview button").nth(2 * 4 + 1).click()
    assert opened.text_content("#head-title") == "Layer 2, head 1"
    opened.locator("#from button").nth(4).focus()
    for key, layer, head in (
        ("ArrowUp", 1, 1), ("ArrowRight", 1, 2), ("ArrowRight", 1, 3), ("ArrowRight", 1, 3),  # the last one
        ("ArrowDown", 2, 3), ("ArrowDown", 2, 3), ("ArrowLeft", 2, 2),
    ):  # fmt: skip
        opened.keyboard.press(key)
        assert opened.text_content("#head-title") == f"Layer {layer}, head {head}"
        assert_shows(opened, "to", view.attention[layer, head, 4])
        assert opened.input_value("#layer") == str(layer)
        current = opened.locator("#overview [aria-current=true]")
        assert current.get_attribute("aria-label") == f"layer {layer}, head {head}"
    opened.select_option("#layer", "0")
    opened.select_option("#head", "1")
    point_at(opened, "from", 1)
    assert_shows(opened, "to", view.attention[0, 1, 1])


def test_words_are_merged_and_split_again_and_predictions_follow(opened, view):
    rows = opened.locator("#predictions tr")
    assert rows.count() == sum(guesses is not None for guesses in view.predictions)
    assert rows.first.text_content() == "harbourthe 0.500guess0 0.100guess1 0.090guess2 0.080guess3 0.070"
    point_at(opened, "from", 1)
    assert opened.locator("#predictions [data-chosen=true]").count() == 1
    opened.check("#merge")
    assert texts(opened, "#to .name") == view.words
    opened.keyboard.press("ArrowRight")
    merged = merge_words(view.attention, view.word_indices)
    for index in (4, 2):  # the [SEP], and a word of two pieces
        point_at(opened, "from", index)
        assert_shows(opened, "to", merged[0, 1, index])
    assert texts(opened, "#predictions tr[data-chosen=true] td:first-child") == ["word1", "##s"]
    assert opened.locator("#overview canvas").first.get_attribute("width") == str(len(view.words))
    opened.uncheck("#merge")
    assert texts(opened, "#to .name") == view.tokens


def test_without_predictions_and_attributions_a_note_says_why(open_page):
    view = make_view(has_predictions=False, notes=["The checkpoint has no masked-LM head."])
    opened = open_page(html_of(view))
    assert not opened.is_visible("#predictions-section") and not opened.is_visible("#attributions-section")
    assert texts(opened, "#notes li") == view.notes


def test_attributions_are_shown_by_method_and_unit(open_page, view):
    values = np.linspace(-1, 2, len(view.tokens)).astype(np.float32)
    opened = open_page(html_of(dataclasses.replace(view, attributions=Attributions("good <b>", values, -values))))
    assert opened.text_content("#attributions-title") == "What decided: “good <b>”"

    def assert_shown(names, expected):
        assert texts(opened, "#attributions span") == names
        shown = [float(chip.get_attribute("title")) for chip in opened.query_selector_all("#attributions span")]
        np.testing.assert_allclose(shown, expected, rtol=0.01)

    assert_shown(view.tokens, -values)
    opened.select_option("#method", "gradient_times_input")
    assert_shown(view.tokens, values)
    opened.check("#merge")
    assert_shown(view.words, np.bincount(view.word_indices, values))


@pytest.mark.endurance
def test_light_and_dark_are_the_systems_until_the_button_is_pressed(open_page, view):
    light, dark = "rgb(247, 248, 250)", "rgb(20, 23, 28)"
    for scheme, colors in (("light", [light, dark, light]), ("dark", [dark, light, dark])):
        opened = open_page(html_of(view), color_scheme=scheme)
        for color in colors:
            assert opened.evaluate("getComputedStyle(document.body).backgroundColor") == color
            opened.click("#theme")


def test_a_hostile_text_is_text(open_page):
    opened = open_page(html_of(make_view(word=HOSTILE, notes=[HOSTILE], guess=HOSTILE)))
    assert texts(opened, "#from .name")[1] == HOSTILE
    assert texts(opened, "#notes li") == [HOSTILE]
    assert texts(opened, "#predictions .guess")[0] == f"{HOSTILE} 0.500"
    assert opened.title().startswith("Attention: ")
    assert opened.locator("img").count() == 0
    assert opened.locator("script").count() == 2


@pytest.mark.endurance
def test_the_page_of_144_heads_and_508_tokens_opens(open_page):
    view = make_view(num_layers=12, num_heads=12, num_words=379)
    assert len(view.tokens) == 508
    text = html_of(view, head=1)
    assert len(text) < 10 * 2**20
    opened = open_page(text)
    point_at(opened, "from", 2)
    weights = view.attention[0, 1, 2]
    assert_shows(opened, "to", np.where(weights >= np.sort(weights)[-25], weights, 0))
