"""Reads report pages, for tests of their writers."""

import json
import re


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def sections_of(path):
    data = data_of(path.read_text(encoding="utf-8"))
    return {section["title"]: section for section in data["sections"]}


def scores_of(path):
    """Return the numbers of a page by name, as strings like in `eval_results.txt`."""
    return {name: exact for name, _, exact in sections_of(path)["Scores"]["values"]}
