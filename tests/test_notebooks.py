"""The notebooks: their stored outputs, and reproducing these by running them."""

import importlib.util
import json
import re

import pytest

from tests.conftest import ROOT
from tests.pages import compare

FOLDER = ROOT / "notebooks"
NAMES = ["1_pretraining.ipynb", "2_classification.ipynb", "3_attention_and_similarity.ipynb", "4_search.ipynb"]
LARGEST_KILOBYTES = 400
ACCURACY_TOLERANCE = 0.15  # between machines, whose arithmetic differs in the last bits from the first step on

COMMAND = r'^!"\{python\}" -m official_bert ((?:.*\\\n)*.*)'  # a script's command line, possibly over several lines

notebooks = pytest.mark.parametrize("name", NAMES)


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def stored(name):
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def printed_lines(cell):
    texts = ["".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream"]
    return "".join(texts).splitlines()


def num_pictures(cell):
    return sum("image/png" in output.get("data", {}) for output in cell["outputs"])


def accuracies(lines):
    return [float(figure) for line in lines if "accuracy" in line for figure in re.findall(r"\b[01]\.\d+", line)]


def test_these_are_all():
    assert sorted(path.name for path in FOLDER.glob("*.ipynb")) == NAMES


@notebooks
def test_a_notebook_is_stored_as_it_ran_without_errors_or_anything_of_the_machine(name):
    assert (FOLDER / name).stat().st_size < LARGEST_KILOBYTES * 1000
    notebook = stored(name)
    cells = code_cells(notebook)
    assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["name"]) == (4, "python3")
    assert notebook["cells"][0]["cell_type"] == "markdown"
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert all(cell["metadata"] == {} for cell in notebook["cells"])  # the times of a run, for example
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert {output["name"] for output in outputs if output["output_type"] == "stream"} <= {"stdout"}
    text = "\n".join(line for cell in cells for line in [*cell["source"], *printed_lines(cell)])
    assert not re.search(r"(?<![\w.}])/\w+/\w|[A-Z]:\\|\x1b|\r|WARNING|Traceback", text)


@notebooks
def test_links_of_a_notebook_lead_to_files_and_headings(name):
    text = "".join(line for cell in stored(name)["cells"] if cell["cell_type"] == "markdown" for line in cell["source"])
    links = re.findall(r"\]\(([^)#]+)(?:#([^)]+))?\)", text)
    assert links
    for target, anchor in links:
        assert (FOLDER / target).exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", (FOLDER / target).read_text(), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]


def test_the_others_pretrain_with_the_commands_of_the_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small_bert, made = loaded(FOLDER / "small_bert.py"), {}

    def record(log, script, **flags):
        made[script] = {f"--{name}={value}".removesuffix("=True") for name, value in flags.items()}
        if script == "build_vocab":
            flags["vocab_file"].write_text("[PAD]\n")

    small_bert._run = record
    assert small_bert.pretrained_folder() == "output/pretraining"
    assert made == commands_of_first_notebook() != {}


def commands_of_first_notebook():
    """Map scripts to flags for the commands that create the model."""
    source = "\n".join("".join(cell["source"]) for cell in code_cells(stored(NAMES[0])))
    lengths = re.search(r'lengths = "(.*)"', source)[1]
    commands = {}
    for command in re.findall(COMMAND, source, re.MULTILINE):
        script, *flags = command.replace("\\\n", " ").format(folder="output/pretraining", lengths=lengths).split()
        if not any("heldout" in flag for flag in flags):
            commands[script] = {*flags} - {"--log_steps=100"}
    return commands


def loaded(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    """The output folder of all notebooks."""
    return tmp_path_factory.mktemp("output")


@pytest.mark.endurance
@notebooks
def test_a_notebook_runs_and_prints_what_is_stored(name, output):
    for package in ("nbclient", "ipykernel", "matplotlib", "uvicorn"):
        pytest.importorskip(package, reason=f'needs {package}, of the extras "notebooks" and "serve"')
    executed = loaded(ROOT / "tools" / "run_notebooks.py").execute(FOLDER / name, output)
    complaints = []
    for shown, printed in zip(code_cells(stored(name)), code_cells(executed), strict=True):
        complaints += compare(loose(printed_lines(shown)), loose(printed_lines(printed)))
        assert num_pictures(shown) == num_pictures(printed)
        assert {"stdout"} >= {output["name"] for output in printed["outputs"] if output["output_type"] == "stream"}
        expected, found = (accuracies(printed_lines(cell)) for cell in (shown, printed))
        assert found == pytest.approx(expected, abs=ACCURACY_TOLERANCE)
    assert not complaints, "\n".join(complaints)


def loose(lines):
    """Return lines without a model's choices: labels, filled-in words, found sentences."""
    lines = [re.sub(r"^(\w+ +)([01]\.\d+)(  .*)", r"LABEL \2\3", line) for line in lines]  # from a classifier
    lines = [re.sub(r"^(    [01]\.\d+  ).*", r"\1SENTENCE", line) for line in lines]
    return [re.sub(r"(?<!\S)(?!norm )\S+ [01]\.\d\d(?=,|$)", "WORD", line) for line in lines]
