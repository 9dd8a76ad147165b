"""A real browser, for the tests of pages."""

import shutil

import pytest


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium; skips where it or playwright is not installed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        pytest.skip("neither chromium nor google-chrome is on the PATH")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()
