"""Time to render the pages of the tools in headless Chromium, compared with an empty page.

  python benchmarks/page_opening.py

Needs playwright and Chromium on the PATH. The attention and the report are synthetic and of maximum size.
"""

import pathlib
import statistics
import sys
import tempfile

from common import ROUNDS
from playwright.sync_api import sync_playwright

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # for tests/, which is not installed

from official_bert.visualization import attention, report_page  # noqa: E402
from tests.attention_views import make_view  # noqa: E402
from tests.browser_fixtures import OpenedPage, find_chromium, launch_browser  # noqa: E402
from tests.visualization.report_sections import largest_sections  # noqa: E402


def pages() -> dict[str, str]:
    view = make_view(num_layers=12, num_heads=12, num_words=94)
    return {
        "an empty page": '<!DOCTYPE html><html data-ready="true"><body>empty</body></html>',
        "attention: 128 wordpieces, 12 layers": attention.page(view, layer=0, head=0, merges_words=False),
        "report: 25 mistakes in long contexts": report_page.report_page("made", largest_sections()),
    }


def main() -> None:
    if not find_chromium():
        sys.exit("neither chromium nor google-chrome is on the PATH")
    print(f"Opening a page: median of {ROUNDS}, seconds")
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        browser = launch_browser(driver)
        path = pathlib.Path(folder) / "page.html"
        for name, text in pages().items():
            times = []
            for _ in range(ROUNDS):
                opened = OpenedPage(browser, path, text)
                times.append(opened.seconds)
                opened.close()
            print(f"  {name:<38} {statistics.median(times):5.2f} s   {len(text.encode()) / 1e6:5.1f} MB")
        browser.close()


if __name__ == "__main__":
    main()
