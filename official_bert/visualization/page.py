"""Self-contained HTML pages, filled from templates."""

import base64
import hashlib
import importlib.resources
import json
import re
from collections.abc import Mapping
from typing import Any

_SHARED = ("page.css", "page.js")


def filled(template: str, data: Mapping[str, Any]) -> str:
    """Fill a template with data.

    A template is an HTML file in this folder with one `<style>` and one `<script>` element, in which `{{page.css}}` and
    `{{page.js}}` are replaced by the code that all pages share. `{{policy}}` is its Content-Security-Policy, and the
    element with `{{data}}` is read by `page.js`. The policy permits only these two elements, and the script inserts
    data as text only, so user texts cannot become markup.

    Args:
      template: name of the template.
      data: JSON values; `page.js` shows the sentences in `notes`.

    Returns:
      HTML.
    """
    page = _read(template)
    for name in _SHARED:
        page = page.replace(f"{{{{{name}}}}}", _read(name))
    parts = {name: re.search(rf"<{name}>(.*?)</{name}>", page, re.DOTALL)[1] for name in ("style", "script")}
    policy = "; ".join(f"{name}-src 'sha256-{_sha256(part)}'" for name, part in parts.items())
    # Data is inserted last, so that nothing in it is replaced. JSON has no NaN: unknown numbers must be None.
    text = json.dumps(data, allow_nan=False).replace("<", r"\u003c")
    return page.replace("{{policy}}", policy).replace("{{data}}", text)


def _read(name: str) -> str:
    return importlib.resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
