"""A real browser, for the tests of pages."""

import shutil

import pytest


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium; skips if it or playwright is not installed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        pytest.skip("neither chromium nor google-chrome is on the PATH")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, tmp_path):
    """Open pages by their text; at the end, assert that they had no errors and requested nothing."""
    opened = []

    def open_page(text, *, width=1400, **options):
        path, errors, requests = tmp_path / f"page{len(opened)}.html", [], []
        path.write_text(text, encoding="utf-8")
        page = browser.new_page(viewport={"width": width, "height": 900}, **options)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri(), timeout=120_000)
        page.wait_for_selector("html[data-ready]")
        opened.append((page, errors, requests, path.as_uri()))
        return page

    yield open_page
    for page, errors, requests, address in opened:
        page.close()
        assert (errors, requests) == ([], [address])


def texts(page, selector):
    return page.locator(selector).all_text_contents()


def assert_is_narrow(page, width):
    assert page.evaluate("document.documentElement.scrollWidth") <= width
