"""The user pages: commands run unchanged and print the shown output, and cited tests and files exist."""

import ast
import doctest
import fnmatch
import importlib
import os
import re
import shutil
import subprocess
import sys

import pytest
from absl import flags

from official_bert.commands import NAMES, load_command
from official_bert.options.command import define_flags, parse_flags
from tests.conftest import ROOT, endurance, slow
from tests.pages import find_blocks, find_commands, find_steps, reader_environment, run_step
from tests.stand_ins import STAND_INS, prepare, replaced

PATTERNS = ("README.md", "docs/*.md", "data/*/README.md", "vocab/README.md")
PAGES = [str(path.relative_to(ROOT)) for pattern in PATTERNS for path in sorted(ROOT.glob(pattern))]


def steps_of(page):
    """Return the steps of a page; raise if one is neither run nor says why not."""
    blocks = find_blocks((ROOT / page).read_text())
    return [step for block in blocks if not block.not_run for step in find_steps(block)]


@pytest.mark.parametrize("stand_in", STAND_INS, ids=lambda stand_in: f"{stand_in.page} {stand_in.real}")
def test_stand_ins_replace_something_on_the_page(stand_in):
    assert stand_in.real in (ROOT / stand_in.page).read_text()


@pytest.mark.parametrize("page", ["README.md", "docs/tour.md"])
def test_the_first_pages_need_only_the_installed_package(page):
    commands = [step.text for step in steps_of(page) if step.language == "sh"]
    assert any("official-bert" in command for command in commands)
    wrong = re.compile(r"\bmake |\bpython \S+\.py|\b(vocab|notebooks|recipes)/")
    assert not list(filter(wrong.search, commands))
    for name in re.findall(r"\bdata/([\w./]+)", "\n".join(commands)):
        assert (ROOT / "official_bert" / "demo_data" / name).exists(), name


@pytest.fixture(scope="module")
def project(tmp_path_factory, one_layer_config_file):
    """A copy of the project, in which the model that some pages train has one layer."""
    if not shutil.which("git"):
        pytest.skip("needs git")
    folder = tmp_path_factory.mktemp("clone") / "official-bert"
    shutil.copytree(ROOT, folder, ignore=ignored_names)
    shutil.copy(one_layer_config_file, folder / "tests" / "golden" / "pretraining_model")
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    return folder


@pytest.fixture
def clone(project):
    """A copy of the project without files of earlier runs or other pages."""
    git(project, "checkout", "--quiet", ".")
    git(project, "clean", "--quiet", "-dfx", "--exclude=__pycache__")
    return project


def ignored_names(folder, names):
    """Return the names in a folder that .gitignore excludes, but compiled modules, and tool files with a dot."""
    patterns = [line for line in (ROOT / ".gitignore").read_text().splitlines() if not line.startswith("#")]
    here = {pattern.strip("/") for pattern in patterns if not pattern.startswith("/") or folder == str(ROOT)}
    here -= {"__pycache__"}
    return {
        name
        for name in names
        if any(fnmatch.fnmatch(name, pattern) for pattern in here) or (name[0] == "." and name != ".gitignore")
    }


def git(folder, *arguments):
    process = subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, text=True)
    return process.stdout.splitlines()


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_programs_name_what_there_is(page):
    for step in steps_of(page):
        for name, *arguments in find_commands(step):
            if name not in NAMES:
                continue
            command, values = load_command(name), flags.FlagValues()
            define_flags(command.config_class, values)
            ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
            # Not variables of the shell, flags of absl and files that the page writes.
            ours = [word for word in ours if not word.startswith(("$", "--verbosity=", "--flagfile=out/"))]
            parse_flags(values, [name, *ours], command.positional)
        program = step.text if step.language == "python" else ""
        if step.shown is not None:
            program = "".join(example.source for example in doctest.DocTestParser().get_examples(program))
        for node in ast.walk(ast.parse(program)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("official_bert"):
                module = importlib.import_module(node.module)
                assert not [name.name for name in node.names if not hasattr(module, name.name)], step.line


RUN = sorted(filter(lambda page: steps_of(page), PAGES), key=lambda page: -len(steps_of(page)))  # longest first
IN_CI = ("README.md", "docs/sentence_encoders.md")  # reach what no test of CI does


@pytest.mark.parametrize("page", [*slow(*IN_CI), *endurance(*(page for page in RUN if page not in IN_CI))])
def test_commands_print_what_the_page_shows(page, clone, forked_python):
    prepare(page, clone)
    environment = reader_environment(str(clone))
    environment["PATH"] = os.pathsep.join((str(forked_python.parent), environment["PATH"]))
    complaints = []
    for step in steps_of(page):
        found = run_step(step._replace(text=replaced(page, step.text)), str(clone), environment, timeout=600)
        complaints += [f"{page}:{step.line}: {step.text.splitlines()[0]}", *found] if found else []
    assert not complaints, "\n".join(complaints)
    # The readers' files must be ignored by git.
    assert git(clone, "ls-files", "--others", "--modified", "--exclude-standard") == []


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    pytest.importorskip("material", reason="needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", f"--site-dir={folder}"]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    return folder


@pytest.mark.slow
def test_the_site_has_a_page_for_each_page(site):
    made = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    assert made >= {page.removeprefix("docs/").replace(".md", ".html") for page in PAGES if page.startswith("docs/")}


@pytest.mark.endurance
@pytest.mark.browser
def test_the_site_opens_from_files_with_its_links_and_search(browser, site):
    page, requests = browser.new_page(viewport={"width": 1280, "height": 900}), []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.locator(".md-search__input").press_sequentially("calibration")  # the page listens to keys, not to input
    page.wait_for_selector(".md-search-result__link", timeout=120_000)  # the index is read by a script
    assert "classification.html" in page.locator(".md-search-result__link").nth(1).get_attribute("href")
    page.goto((site / "index.html").as_uri())
    page.click(".md-content a >> text=A tour")
    page.wait_for_url("**/tour.html")
    assert page.locator("h1").inner_text().startswith("A tour")
    widths = "[...document.querySelectorAll('pre > code')].map((code) => code.scrollWidth - code.clientWidth)"
    assert len(page.evaluate(widths)) > 10 and max(page.evaluate(widths)) <= 1
    assert all(url.startswith(("file:", "data:")) for url in requests), requests
    page.close()


def test_no_docstring_begins_with_a_question():
    paths = [path for part in ("official_bert/**", "tools", "benchmarks", ".") for path in ROOT.glob(f"{part}/*.py")]
    firsts = [word for path in paths for word in re.findall(r'^ *"""(\w+)', path.read_text(), re.M)]
    assert len(firsts) > 2000
    assert not {"What", "How", "Which", "Whether", "Where", "When", "Why", "Who", "Whose", "Of", "As"} & set(firsts)


def test_the_picture_of_speed_shows_the_table_of_its_page(tmp_path):
    page, picture = ROOT / "docs" / "performance.md", tmp_path / "speed.svg"
    command = [sys.executable, ROOT / "benchmarks" / "summary.py", "--draw", page, "--picture", picture]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert picture.read_text() == (ROOT / "docs" / "images" / "speed.svg").read_text()
    assert picture.read_text().count("<rect") > 10


def test_every_cited_test_exists():
    text = (ROOT / "docs" / "differences.md").read_text()
    cited = re.findall(r"`([\w/]*test_\w+(?:\.py)?(?:::\w+)*)`", text)
    assert len(cited) > 40
    absent = [name for name in cited if not is_test(*name.split("::"))]
    assert not absent


def is_test(file, *names):
    """Return True if tests/ has this file with these names of a class, function or method."""
    path = ROOT / "tests" / file
    if not path.is_file():
        return False
    node = ast.parse(path.read_text())
    for name in names:
        node = next((inner for inner in node.body if getattr(inner, "name", None) == name), None)
        if node is None:
            return False
    return True
