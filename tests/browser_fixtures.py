"""A real browser, for the tests of pages."""

import shutil
import time

import pytest


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium; skips if it or playwright is not installed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not find_chromium():
        pytest.skip("neither chromium nor google-chrome is on the PATH")
    with playwright.sync_playwright() as driver:
        browser = launch_browser(driver)
        yield browser
        browser.close()


def find_chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("google-chrome")


def launch_browser(driver):
    return driver.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])


class OpenedPage:
    """A page opened from a file.

    Attributes:
      page: Playwright's page.
      seconds: time it took to open.
      errors: errors in the page.
    """

    def __init__(self, browser, path, text, *, width=1400, **options):
        path.write_text(text, encoding="utf-8")
        self.errors, self._requests, self._url = [], [], path.as_uri()
        self.page = browser.new_page(viewport={"width": width, "height": 900}, **options)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("request", lambda request: self._requests.append(request.url))
        start = time.monotonic()
        self.page.goto(self._url)
        self.page.wait_for_selector("html[data-ready]")
        self.seconds = time.monotonic() - start

    def background(self):
        return self.page.evaluate("getComputedStyle(document.body).backgroundColor")

    def close(self):
        """Close the page; assert that there were no errors and no external requests."""
        self.page.close()
        assert self.errors == []
        assert self._requests == [self._url]
