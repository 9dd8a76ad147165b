"""What a report page holds, for tests of what writes one."""

import json
import re


def data_of(page):
    """The data of a page's text."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def sections_of(path):
    """The sections of a page by title."""
    data = data_of(path.read_text(encoding="utf-8"))
    return {section["title"]: section for section in data["sections"]}


def scores_of(path):
    """Name to number as text, as `eval_results.txt` has them."""
    return {name: exact for name, _, exact in sections_of(path)["Scores"]["values"]}
