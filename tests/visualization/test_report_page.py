"""The page of a report in a real browser: a headless Chromium."""

import pytest

from official_bert.visualization.report_page import Matrix, Mistake, Mistakes, Part, Table, Text, report_page
from tests.attention_views import HOSTILE
from tests.browser_fixtures import OpenedPage
from tests.conftest import endurance
from tests.visualization.report_sections import HEBREW, KOREAN, largest_sections, made_sections

pytestmark = [pytest.mark.browser, pytest.mark.slow]


class Opened(OpenedPage):
    """The page of a report."""

    def texts(self, selector):
        return self.page.locator(selector).all_text_contents()


@pytest.fixture
def opened(browser, tmp_path):
    opened = Opened(browser, tmp_path / "report.html", report_page("A report", made_sections()))
    yield opened
    opened.close()


def test_every_section_shows_its_content(opened):
    assert opened.page.title() == "A report"
    assert opened.texts("h1") == ["A report"]
    assert opened.texts("h2") == [section.title for section in made_sections()]
    assert opened.texts(".scores dd") == ["0.8064"]
    assert opened.texts(".minor") == ["loss nan · global_step 343"]
    assert opened.page.get_attribute(".scores div >> nth=0", "title") == "eval_accuracy = 0.80637254"
    assert opened.texts(".matrix td") == ["7", "", "1", "2"]
    assert opened.texts(".table td") == ["warm harbour", "0.500", HEBREW, "0.333"]
    assert opened.texts("[data-kind=Mistakes] .note") == ["The worst."]
    assert opened.texts("[data-kind=Mistakes] >> nth=1 >> p") == ["None."]
    assert opened.texts("article >> nth=0 >> dd") == ["warm harbour", KOREAN]
    assert opened.texts("article >> nth=0 >> mark") == ["warm harbourPLACE", "bridge"]


def height_of(opened, selector):
    return [float(each.get_attribute("height")) for each in opened.page.locator(selector).all()]


def test_charts_are_drawn_to_scale(opened):
    right, wrong = height_of(opened, "[data-kind=Bars] rect.part0"), height_of(opened, "[data-kind=Bars] rect.part1")
    assert right[0] == pytest.approx(3 * wrong[0]) and right[1] == wrong[1] == 0
    bars = height_of(opened, "[data-kind=Reliability] rect.bin")
    assert bars == pytest.approx([0.5 * 300])  # the empty interval has no bar
    gap = opened.page.locator("[data-kind=Reliability] .gap")
    assert abs(float(gap.get_attribute("y1")) - float(gap.get_attribute("y2"))) == pytest.approx(0.25 * 300)
    points = opened.page.locator("[data-kind=Scatter] circle")
    places = [(float(points.nth(i).get_attribute("cx")), float(points.nth(i).get_attribute("cy"))) for i in range(3)]
    (left, bottom), middle, (right_end, high) = places
    assert middle[0] - left == pytest.approx(0.4 * (right_end - left), abs=0.1)
    assert bottom - high == pytest.approx((bottom - middle[1]) / 5, abs=0.1)


def test_long_texts_are_folded_beside_what_is_marked_until_they_are_opened(opened):
    text = opened.page.locator("article >> nth=0 >> .text >> nth=1")
    context = "The harbour. " * 200
    shown = text.text_content()
    before, after = "…" + context[-300:], context[:300]
    assert shown == f"{before}warm harbourPLACE{after}{before}bridge{after}…"
    for _ in range(3):
        text.locator("button").first.click()
    assert text.text_content() == context + "warm harbourPLACE" + context + "bridge" + context


def test_a_text_without_marks_is_folded_at_its_end_and_no_character_is_cut_in_two(browser, tmp_path):
    long = "😀" * 1_000
    sections = [Mistakes(title="Mistakes", mistakes=[Mistake({}, [Text("", [Part(long)])])])]
    opened = Opened(browser, tmp_path / "report.html", report_page("made", sections))
    assert opened.texts("article .text") == ["😀" * 300 + "…"]
    opened.page.click("article button")
    assert opened.texts("article .text") == [long]
    opened.close()


@pytest.mark.parametrize("text", [HOSTILE[0], *endurance(*HOSTILE[1:], "\u202e turned \u2067")])
def test_a_hostile_text_is_text(browser, tmp_path, text):
    opened = Opened(browser, tmp_path / "report.html", report_page(text, made_sections(text)))
    assert opened.texts("h1") == [text]
    assert opened.page.title() == " ".join(text.split(" ")).strip()
    assert opened.texts("thead th[scope=col] >> nth=0") == [text]
    assert opened.texts(".table td >> nth=0") == [text]
    assert opened.texts("article >> nth=0 >> dd")[0] == text
    assert opened.texts("article >> nth=0 >> mark")[0] == f"{text}PLACE"
    assert opened.page.locator("img").count() == 0
    assert opened.page.locator("script").count() == 2
    opened.close()


def test_a_script_from_right_to_left_runs_so(browser, tmp_path):
    opened = Opened(browser, tmp_path / "report.html", report_page("made", made_sections(HEBREW, context="")))
    directions = "[...document.querySelectorAll('article .text')].map((text) => getComputedStyle(text).direction)"
    assert opened.page.evaluate(directions)[:2] == ["rtl", "rtl"]
    opened.close()


def test_on_a_narrow_screen_nothing_is_wider_than_it(browser, tmp_path):
    sections = made_sections("a" * 300)
    sections[1] = Matrix(title="Confusion", names=["label" * 9] * 30, counts=[[12_345] * 30] * 30)
    opened = Opened(browser, tmp_path / "report.html", report_page("b" * 300, sections), width=360)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360
    opened.close()


NUM_LINES = """(cell) => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  return new Set([...range.getClientRects()].map((box) => Math.round(box.bottom))).size;
}"""


@pytest.mark.parametrize("width", [390, *endurance(1280)])
@pytest.mark.parametrize(
    "kinds", ["Scatter Table Bars", *endurance("Matrix Table Reliability Bars", "Table Reliability Bars")]
)
def test_words_are_whole_and_sections_leave_no_gap(browser, tmp_path, kinds, width):
    labels, columns = ["contradiction", "entailment", "neutral"], ["gold", "predicted", "precision", "recall", "F1"]
    made = {type(section).__name__: section for section in made_sections()}
    made["Matrix"] = Matrix(title="Confusion", names=labels, counts=[[1, 2, 3]] * 3)
    made["Table"] = Table(title="By label", columns=["label", *columns], rows=[(name, *[0.5] * 5) for name in labels])
    sections = [made["Scores"], *(made[kind] for kind in kinds.split()), made["Mistakes"]]
    opened = Opened(browser, tmp_path / "report.html", report_page("dev.tsv", sections), width=width)
    gap, whole = 16, opened.page.locator("main").bounding_box()
    boxes = [section.bounding_box() for section in opened.page.locator("section").all()]
    area = sum((box["width"] + gap) * (box["height"] + gap) for box in boxes)
    assert area == pytest.approx((whole["width"] + gap) * (whole["height"] + gap), rel=0.005)
    cells = [cell for cell in opened.page.locator("dt, th div, .table th, td.name").all() if cell.is_visible()]
    assert len(cells) >= 10 and all(cell.evaluate(NUM_LINES) == 1 for cell in cells if " " not in cell.inner_text())
    assert opened.page.locator(".table").bounding_box()["width"] < width
    opened.close()


@pytest.mark.endurance
def test_the_largest_page_opens(browser, tmp_path):
    path = tmp_path / "report.html"
    opened = Opened(browser, path, report_page("made", largest_sections()))
    assert 500_000 < path.stat().st_size < 3_000_000
    opened.close()
