"""Generated pages of `make docs`: the README, the notebooks, and the flags of every command."""

import dataclasses
import posixpath
import re
import sys
from pathlib import Path

from mkdocs.structure.files import File
from nbconvert import MarkdownExporter

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from official_bert.commands import all_commands  # noqa: E402
from official_bert.options.option import GROUPS, REQUIRED  # noqa: E402

_COMMANDS_INTRODUCTION = """# Commands and flags

`official-bert NAME --flags...`; the six scripts at the root of the repository are commands too. Flags marked with * are
required. Every command has `--help` and `--helpfull`, `--flagfile=FILE`, which reads flags from a file, and
`--verbosity=1`, which logs more.
"""


def on_files(files, config):
    """Add the generated pages; mkdocs calls this after collecting the files of docs/."""
    files.append(File.generated(config, "index.md", content=(ROOT / "README.md").read_text()))
    files.append(File.generated(config, "commands.md", content=commands_page()))
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text, resources = MarkdownExporter().from_filename(str(notebook))
        text = text.replace("](output_", f"]({notebook.stem}_output_")
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=text))
        for name, image in resources["outputs"].items():
            files.append(File.generated(config, f"notebooks/{notebook.stem}_{name}", content=image))
    return files


def on_page_markdown(markdown, page, **_):
    """Rewrite links between repository files as links between pages; remove links to files without a page."""
    source = page.file.src_uri
    folder = posixpath.dirname(source)
    repository_folder = "" if source == "index.md" else folder if folder == "notebooks" else f"docs/{folder}"

    def page_link(match: re.Match) -> str:
        text, target, anchor = match.groups()
        path = posixpath.normpath(posixpath.join(repository_folder, target))
        path = {"README.md": "docs/index.md", "notebooks": "docs/notebooks/1_pretraining.md"}.get(path, path)
        if path.startswith("notebooks/"):
            path = f"docs/{path.replace('.ipynb', '.md')}"
        if not path.startswith("docs/"):
            return text
        path = path.removeprefix("docs/")
        return f"[{text}]({posixpath.relpath(path, folder or '.')}{anchor or ''})"

    return re.sub(r"\[([^][]*)\]\((?!\w+:)([^()#\s]+)(#[^()\s]*)?\)", page_link, markdown)


def on_page_content(html, **_):
    """Mark flags in code, so that no line ends within one; mkdocs calls this with the body of a page."""
    return re.sub(r"(?<=[>\s])--[a-z]\w*", r'<span class="flag">\g<0></span>', html)


def commands_page() -> str:
    """Return the reference page of all commands, with a table of flags for each."""
    parts = [_COMMANDS_INTRODUCTION]
    for name, command in all_commands().items():
        parts.append(f"## {name}\n\n{command.summary}\n")
        fields = dataclasses.fields(command.config_class)
        parts.append("| flag | default | |\n|---|---|---|")
        for group in GROUPS:
            of_group = [field for field in fields if _group(field) == group]
            if of_group and group != REQUIRED:
                parts.append(f"| **{group}** | | |")
            parts += [_flag_row(field) for field in of_group]
        parts.append("")
    return "\n".join(parts)


def _group(field: dataclasses.Field) -> str:
    return REQUIRED if field.metadata["required"] else field.metadata["group"]


def _flag_row(field: dataclasses.Field) -> str:
    limits = field.metadata
    text = limits["help"] + (f" One of {', '.join(limits['choices'])}." if limits["choices"] else "")
    text = text.replace("|", "\\|").replace("<", "&lt;")
    default = "" if field.default in (None, "") else f"`{field.default}`"
    return f"| `--{field.name}`{' *' if limits['required'] else ''} | {default} | {text} |"
