"""Makes the README the first page of `make docs`, and turns links between it and the pages the site's way."""

import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent


def on_files(files, config):
    """Adds the README; mkdocs calls this once it has found the pages."""
    text = (ROOT / "README.md").read_text()
    text = re.sub(r"\[([^]]+)\]\(notebooks/[^)]*\)", r"\1", text)  # the site has no notebooks
    text = text.replace("](docs/", "](").replace("](LICENSE)", "](https://www.apache.org/licenses/LICENSE-2.0)")
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown, **_):
    """Lets a page's links to the README lead to the first page."""
    return re.sub(r"\]\(\.\./README\.md", "](index.md", markdown)
