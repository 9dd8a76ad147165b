"""The page of a report in a real browser: a headless Chromium."""

import pytest

from official_bert.visualization.report_page import (
    Bar,
    Bars,
    Matrix,
    Mistake,
    Mistakes,
    Part,
    Reliability,
    Scatter,
    Scores,
    Table,
    Text,
    report_page,
)
from tests.attention_views import HOSTILE
from tests.browser_fixtures import assert_is_narrow, texts
from tests.conftest import endurance

pytestmark = [pytest.mark.browser, pytest.mark.slow]
KOREAN, HEBREW = "따뜻한 항구의 마을", "הנמל החם של העיר"


def made_sections(text="warm harbour", *, context="The harbour. " * 200):
    """Return one section of each kind, with a text wherever user text may occur."""
    parts = [Part(context), Part(text, "gold", "PLACE"), Part(context), Part("bridge", "gold predicted"), Part(context)]
    mistake = Mistake({"gold": text, "predicted": KOREAN}, [Text("question", [Part(text)]), Text("", parts)])
    return [
        Scores(title="Scores", values={"eval_accuracy": 0.80637254, "loss": float("nan"), "global_step": 343}),
        Matrix(title="Confusion", names=[text, KOREAN], counts=[[7, 0], [1, 2]], note=text),
        Table(title="By label", columns=["label", "F1"], rows=[(text, 0.5), (HEBREW, 1 / 3)]),
        Reliability(title="Calibration", bins=[(0.0, 0.5, 0, 0.0, 0.0), (0.5, 1.0, 10, 0.75, 0.5)]),
        Bars(title="Length", parts=["a", "b"], bars=[Bar("0–9", (3, 1), "75.0%"), Bar("10+", (0, 0), "")], axis="x"),
        Scatter(title="Predicted over gold", points=[(0.0, 0.0), (2.0, 5.0), (5.0, 1.0)]),
        Mistakes(title="Mistakes", mistakes=[mistake] * 2, note="The worst."),
        Mistakes(title="No mistakes", mistakes=[]),
    ]


@pytest.fixture
def opened(open_page):
    return open_page(report_page("A report", made_sections()))


def test_every_section_shows_its_content(opened):
    assert opened.title() == "A report"
    for selector, expected in {
        "h1": ["A report"],
        "h2": [section.title for section in made_sections()],
        ".scores dd": ["0.8064"],
        ".minor": ["loss nan · global_step 343"],
        ".matrix td": ["7", "", "1", "2"],
        ".table td": ["warm harbour", "0.500", HEBREW, "0.333"],
        "[data-kind=Mistakes] .note": ["The worst."],
        "[data-kind=Mistakes] >> nth=1 >> p": ["None."],
        "article >> nth=0 >> dd": ["warm harbour", KOREAN],
        "article >> nth=0 >> mark": ["warm harbourPLACE", "bridge"],
    }.items():
        assert texts(opened, selector) == expected
    assert opened.get_attribute(".scores div >> nth=0", "title") == "eval_accuracy = 0.80637254"


def test_charts_are_drawn_to_scale(opened):
    def numbers(selector, name):
        return [float(shape.get_attribute(name)) for shape in opened.query_selector_all(selector)]

    right, wrong = (numbers(f"[data-kind=Bars] rect.part{part}", "height") for part in (0, 1))
    assert right[0] == pytest.approx(3 * wrong[0]) and right[1] == wrong[1] == 0
    # The empty interval has no bar.
    assert numbers("[data-kind=Reliability] rect.bin", "height") == pytest.approx([0.5 * 300])
    (start,), (end,) = (numbers("[data-kind=Reliability] .gap", name) for name in ("y1", "y2"))
    assert abs(start - end) == pytest.approx(0.25 * 300)
    (left, middle, right), (bottom, top, low) = (numbers("[data-kind=Scatter] circle", name) for name in ("cx", "cy"))
    assert middle - left == pytest.approx(0.4 * (right - left), abs=0.1)
    assert bottom - low == pytest.approx((bottom - top) / 5, abs=0.1)


def test_long_texts_are_folded_beside_what_is_marked_until_they_are_opened(opened):
    text = opened.locator("article >> nth=0 >> .text >> nth=1")
    context = "The harbour. " * 200
    before, after = "…" + context[-300:], context[:300]
    assert text.text_content() == f"{before}warm harbourPLACE{after}{before}bridge{after}…"
    for _ in range(3):
        text.locator("button").first.click()
    assert text.text_content() == context + "warm harbourPLACE" + context + "bridge" + context


def test_a_text_without_marks_is_folded_at_its_end_and_no_character_is_cut_in_two(open_page):
    long = "😀" * 1_000
    sections = [Mistakes(title="Mistakes", mistakes=[Mistake({}, [Text("", [Part(long)]), Text("", [Part(HEBREW)])])])]
    opened = open_page(report_page("made", sections))
    assert texts(opened, "article .text") == ["😀" * 300 + "…", HEBREW]
    opened.click("article button")
    assert texts(opened, "article .text") == [long, HEBREW]
    directions = "[...document.querySelectorAll('article .text')].map((text) => getComputedStyle(text).direction)"
    assert opened.evaluate(directions) == ["ltr", "rtl"]


def test_a_hostile_text_is_text(open_page):
    opened = open_page(report_page(HOSTILE, made_sections(HOSTILE)))
    assert opened.title() == HOSTILE
    for selector, shown in {
        "h1": HOSTILE, "thead th[scope=col]": HOSTILE, ".table td": HOSTILE,
        "article >> nth=0 >> dd": HOSTILE, "article >> nth=0 >> mark": f"{HOSTILE}PLACE",
    }.items():  # fmt: skip
        assert texts(opened, selector)[0] == shown
    assert opened.locator("img").count() == 0
    assert opened.locator("script").count() == 2


def test_on_a_narrow_screen_nothing_is_wider_than_it(open_page):
    sections = made_sections("a" * 300)
    sections[1] = Matrix(title="Confusion", names=["label" * 9] * 30, counts=[[12_345] * 30] * 30)
    assert_is_narrow(open_page(report_page("b" * 300, sections), width=360), 360)


NUM_LINES = """(cells) => cells.map((cell) => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  return new Set([...range.getClientRects()].map((box) => Math.round(box.bottom))).size;
})"""


@pytest.mark.parametrize("width", [390, *endurance(1280)])
def test_words_are_whole_and_sections_leave_no_gap(open_page, width):
    columns = ["gold", "predicted", "precision", "recall", "F1"]
    made = {type(section).__name__: section for section in made_sections()}
    rows = [(name, *[0.5] * 5) for name in ("contradiction", "entailment", "neutral")]
    made["Table"] = Table(title="By label", columns=["label", *columns], rows=rows)
    sections = [made[kind] for kind in ("Scores", "Scatter", "Table", "Bars", "Mistakes")]
    opened = open_page(report_page("dev.tsv", sections), width=width)
    gap, whole = 16, opened.locator("main").bounding_box()
    boxes = [section.bounding_box() for section in opened.query_selector_all("section")]
    area = sum((box["width"] + gap) * (box["height"] + gap) for box in boxes)
    assert area == pytest.approx((whole["width"] + gap) * (whole["height"] + gap), rel=0.005)
    cells = opened.query_selector_all("dt, th div, .table th, td.name")
    cells = [cell for cell in cells if cell.is_visible() and " " not in cell.inner_text()]
    assert len(cells) >= 10 and opened.evaluate(NUM_LINES, cells) == [1] * len(cells)
    assert opened.locator(".table").bounding_box()["width"] < width
