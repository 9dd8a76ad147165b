"""Pages for the browser: one HTML file each, which loads nothing from other places."""

import base64
import hashlib
import importlib.resources
import json
import re
from collections.abc import Mapping
from typing import Any

_SHARED = ("page.css", "page.js")


def filled(template: str, data: Mapping[str, Any]) -> str:
    """Make a page of a template and data.

    A template is an HTML file of this folder with one `<style>` and one `<script>` element, in which `{{page.css}}` and
    `{{page.js}}` stand for what all pages share, with `{{policy}}` in its Content-Security-Policy and with `{{data}}`
    in an element of its own, which `page.js` reads. The policy lets these two elements alone take effect, and the data
    is turned into text by the script alone, so what comes from users' texts cannot become markup.

    Args:
      template: name of the file.
      data: what JSON holds; `page.js` shows the sentences in `notes`.

    Returns:
      HTML.
    """
    page = _read(template)
    for name in _SHARED:
        page = page.replace(f"{{{{{name}}}}}", _read(name))
    parts = {name: re.search(rf"<{name}>(.*?)</{name}>", page, re.DOTALL)[1] for name in ("style", "script")}
    policy = "; ".join(f"{name}-src 'sha256-{_sha256(part)}'" for name, part in parts.items())
    # The data comes last, as nothing is to be replaced in it. NaN is no JSON; numbers that are unknown are to be None.
    text = json.dumps(data, allow_nan=False).replace("<", r"\u003c")
    return page.replace("{{policy}}", policy).replace("{{data}}", text)


def _read(name: str) -> str:
    return importlib.resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
