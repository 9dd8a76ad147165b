"""The page of `serve --ui` in a real browser, in front of a real server."""

import json
import subprocess

import numpy as np
import pytest

from tests.serving.server_process import Server
from tests.serving.tiny_exports import PROMPTS, TAGS

pytest.importorskip("uvicorn")
pytest.importorskip("ai_edge_litert", reason='needs the extra "lite"')
pytestmark = [pytest.mark.browser, pytest.mark.slow]

CONTEXT = "𝕋he tower of the town 'is' bright. <img src=x onerror=\"document.title='harmed'\"> It's old & big."
HOSTILE = "<script>document.title='harmed'</script>"


@pytest.fixture
def opened(browser):
    """Open the page of a server; afterwards check that it only requested this server, without errors."""
    pages = []

    def open_page(server, **options):
        page = browser.new_page(**options)
        page.complaints, page.asked = [], []
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(f"http://localhost:{server.port}/ui")
        page.wait_for_selector("button[type=submit]:enabled")
        pages.append((page, server))
        return page

    yield open_page
    for page, server in pages:
        assert page.complaints == []
        assert {url.split("/")[2] for url in page.asked} == {f"localhost:{server.port}"}
        page.close()


@pytest.fixture(scope="module")
def start(write_export, tmp_path_factory):
    servers = []

    def start_server(task, **options):
        folder = tmp_path_factory.mktemp(task) / task
        write_export(folder, task, **options, export_format="tflite")
        servers.append(Server(str(folder), folder.parent / "log", ui=True))
        return servers[-1]

    yield start_server
    for server in servers:
        assert server.end() == 0, server.log
        assert "Traceback" not in server.log


@pytest.fixture(scope="module")
def reader(start):
    return start("question_answering")


def ask(page, **texts):
    for name, text in texts.items():
        page.fill(f"textarea[name={name}]", text)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("button[type=submit]:enabled")
    page.wait_for_selector("#time:not(:empty), #error:not([hidden])")


def shown_bars(page):
    return [tuple(row.inner_text().split("\t")[::2]) for row in page.locator("#answer tr").all()]


def percentages(names, probabilities):
    return [(name, f"{100 * probability:.1f}%") for name, probability in zip(names, probabilities, strict=True)]


def test_the_curl_line_is_the_request_and_the_best_answer_is_marked_in_its_context(reader, opened):
    page = opened(reader)
    assert "answers questions about a text" in page.inner_text("#about")
    for question in (HOSTILE, "it's\nwhere?"):
        ask(page, question=question, context=CONTEXT)
        command = page.inner_text("#command pre")
        answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout
        outputs = {name: values[0] for name, values in json.loads(answer)["outputs"].items()}
        marked = CONTEXT[outputs["starts"][0] : outputs["ends"][0]]
        assert page.inner_text("#answer mark") == marked == outputs["answers"][0]
        assert page.inner_text("#answer .text") == CONTEXT
        assert shown_bars(page) == percentages(outputs["answers"], outputs["probabilities"])
    page.click("summary")
    assert json.loads(answer) == json.loads(page.inner_text("#raw pre"))
    assert page.title() == "Try the model" and page.locator("img").count() == 0


def test_an_error_of_the_server_is_shown_and_the_next_request_works(reader, opened):
    page = opened(reader)
    page.route("**:predict", lambda route: route.continue_(post_data='{"inputs": {}, "signature_name": "absent"}'))
    ask(page, question="a", context="the town")
    assert "absent" in page.inner_text("#error") and "(status 400)" in page.inner_text("#error")
    page.unroute("**:predict")
    page.route("**:predict", lambda route: route.abort())
    ask(page, question="a", context="the town")
    page.wait_for_selector("text=The server cannot be reached.")
    page.unroute("**:predict")
    ask(page, question="a", context="the town")
    page.wait_for_selector("#answer:not(.stale) mark")
    assert page.locator("#error").is_hidden()


def test_it_is_light_and_dark_and_narrow(reader, opened):
    colours = {}
    for scheme in ("light", "dark"):
        page = opened(reader, color_scheme=scheme, viewport={"width": 320, "height": 600})
        ask(page, question="a" * 90, context="the town " + "x" * 200)
        colours[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert page.evaluate("document.documentElement.scrollWidth") <= 320  # nothing overflows
    assert colours["light"] != colours["dark"]


def test_a_classifier_shows_bars(start, opened):
    server = start("classification")
    page = opened(server)
    ask(page, text_a="the town", text_b=HOSTILE)
    outputs = server.outputs("text", {"text_a": ["the town"], "text_b": [HOSTILE]})
    assert shown_bars(page) == percentages(outputs["classes"][0], sorted(outputs["probabilities"][0], reverse=True))
    assert page.inner_text("button[type=submit]") == "Classify"


def test_an_encoder_compares_two_texts(start, opened):
    server = start("sentence_encoder", prompts=PROMPTS)
    page = opened(server)
    assert page.inner_text("button[type=submit]") == "Embed"
    first, second = page.locator("textarea").all()
    first.fill("the town")
    second.fill(HOSTILE)
    page.click("button[type=submit]")
    page.wait_for_selector("#answer .number")
    one, other = np.array(server.outputs("text", {"text": ["the town", HOSTILE]}))
    cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
    assert float(page.inner_text("#answer .number")) == pytest.approx(cosine, abs=1e-4)


@pytest.mark.endurance
@pytest.mark.parametrize("tags", [TAGS, ("DT", "NN", "VB")], ids=["entities", "parts of speech"])
def test_a_tagger_colours_entities_or_words(start, opened, tags):
    server = start("tagging", tags=tags)
    page, text = opened(server), CONTEXT if "O" in tags else "the bright town"
    ask(page, text=text)
    outputs = server.outputs("text", {"text": [text]})
    marks = [mark.inner_text() for mark in page.locator("#answer .text mark").all()]
    if "O" in tags:
        entities = [text for text in outputs["entities"][0] if text]
        assert entities and [mark.rpartition("PER")[0].strip() for mark in marks] == entities
        assert page.inner_text("#answer .legend").split() == ["PER", str(len(entities))]
    else:
        assert marks == [word + tag for word, tag in zip(text.split(), outputs["tags"][0], strict=True)]
    assert page.title() == "Try the model" and page.locator("img").count() == 0


@pytest.mark.endurance
def test_a_pretrained_model_fills_in_words(start, opened):
    server = start("pretraining")
    page = opened(server)
    text = "the [MASK] of bright [MASK]"
    ask(page, text=text)
    outputs = server.outputs("text", {"text": [text]})
    filled = zip(outputs["words"][0], outputs["probabilities"][0], strict=True)
    expected = [row for words, probabilities in filled for row in percentages(words, probabilities)]
    assert shown_bars(page) == expected and len(expected) == 10
    ask(page, text="the town")
    page.wait_for_selector("text=the text has no [MASK]")
