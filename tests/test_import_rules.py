"""The layers of the package: a module imports only from its own row or the rows above."""

import ast
import functools
import graphlib
import pathlib
import re

from tests.conftest import ROOT

PACKAGE = ROOT / "official_bert"
ROWS = (
    ("support", "lazy", "config", "families", "options"),
    ("tokenization", "metrics", "optimization", "visualization"),
    ("data", "modeling", "checkpoints"),
    ("training", "serving"),
    ("tasks",),
    ("inference",),
    ("commands",),
    ("__main__", "__init__"),
)
ROW_OF = {name: number for number, names in enumerate(ROWS) for name in names}
IN_THE_GRAPH = ("graph_operations.py", "graph_sentencepiece.py", "graph_tokenizer.py")  # of tokenization
MUST_NOT_IMPORT_EACH_OTHER = ROWS[1:4]
# `from_checkpoint` and `save_checkpoint` are methods, as users of Keras expect; their dependencies are imported on
# call, so that the models themselves import only Keras.
IMPORTED_IN_METHODS = {"modeling": "official_bert.checkpoints."}


def modules():
    return sorted(PACKAGE.rglob("*.py"))


@functools.cache
def parsed(path):
    return ast.parse(path.read_text())


def imports(path):
    """Return all imported names of a module, at any place, as dotted paths, except in the methods above."""
    tree = parsed(path)
    allowed, top_level = IMPORTED_IN_METHODS.get(part_of(path)), set(tree.body)
    for node in ast.walk(tree):
        if allowed and node not in top_level and isinstance(node, ast.ImportFrom) and node.module.startswith(allowed):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part_of(path):
    return pathlib.PurePath(path.relative_to(PACKAGE)).parts[0].removesuffix(".py")


def dotted(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def task_of(name):
    """Return the task folder of a dotted path; None outside of one, such as for the registry."""
    folder = name.split(".")[2]
    return folder if (PACKAGE / "tasks" / folder).is_dir() else None


def flags_spelled(path):
    """Return strings that spell a flag, except docstrings: parameters of library functions have no dashes."""
    tree = parsed(path)
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    described = (node for node in ast.walk(tree) if isinstance(node, kinds) and isinstance(node.body[0], ast.Expr))
    docstrings = {id(node.body[0].value) for node in described}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from re.findall(r"--[a-z]+_[a-z_]+", node.value)


def violations(path, imported):
    """Return the violations in the imports of one module."""
    part = part_of(path)
    for name in imported:
        if name.startswith("official_bert.") and name != "official_bert.__version__":
            other = name.split(".")[1]
            if ROW_OF[other] > ROW_OF[part]:
                yield f"{part} imports {name}, which is below it"
            tasks = {task_of(dotted(path)), task_of(name)} if part == other == "tasks" else set()
            if len(tasks - {None}) > 1:
                yield f"{dotted(path)} imports {name}, which is of another task"
            if part != other and any({part, other} <= {*row} for row in MUST_NOT_IMPORT_EACH_OTHER):
                yield f"{part} imports {name}, which is beside it"
        if name.startswith("absl.flags") and part != "options":
            yield "absl.flags is for options"
        top = name.split(".")[0]
        if part == "modeling" and top in ("tensorflow", "tensorflow_text", "jax", "torch"):
            yield f"modeling imports {name}; it is Keras only"
        if part == "tokenization" and top in ("tensorflow", "tensorflow_text") and path.name not in IN_THE_GRAPH:
            yield f"tokenization imports {name}; it is plain Python"
        if part in ("metrics", "visualization") and top in ("tensorflow", "keras"):
            yield f"{part} imports {name}; it is NumPy only"


def test_modules_import_only_upwards():
    found = [f"{path.relative_to(ROOT)}: {text}" for path in modules() for text in violations(path, imports(path))]
    assert found == []


def circle(graph):
    """Return a list of modules that import each other in a circle; None if there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]


def test_no_modules_import_each_other_in_a_circle():
    known = {dotted(path): path for path in modules() if path.name != "__init__.py"}
    graph = {
        module: sorted({part for name in imports(path) for part in (name, name.rpartition(".")[0]) if part in known})
        for module, path in known.items()
    }
    assert sum(map(len, graph.values())) > 500
    assert circle(graph) is None
    trainer, job = "official_bert.training.loop", "official_bert.training.job"
    assert circle({**graph, trainer: [*graph[trainer], job]}) in ([trainer, job, trainer], [job, trainer, job])


def test_every_folder_has_a_line_in_the_architecture():
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if re.match(r"\| \d ", line)]
    named = {name: int(row[1]) for row in rows for name in re.findall(r"`(\w+)/`", row[2])}
    assert all(named[name] == row for name, row in ROW_OF.items() if name in named)
    assert {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()} <= set(named)


def test_gfile_is_used_in_files_alone():
    users = [path.name for path in modules() if "io.gfile" in path.read_text().replace("tf.io.gfile`", "")]
    assert users == ["files.py"]


def test_flags_are_spelled_where_the_command_line_is_known_alone():
    found = [
        f"{path.relative_to(ROOT)}: {flag}"
        for path in modules()
        if part_of(path) not in ("options", "commands", "__main__") and path.name != "options.py"
        for flag in flags_spelled(path)
    ]
    assert found == []
    assert "--do_train" in list(flags_spelled(PACKAGE / "options" / "training.py"))


def test_no_test_imports_from_another_test():
    for path in (ROOT / "tests").rglob("*.py"):
        found = re.findall(r"^\s*(?:from|import) tests\.(?:\w+\.)*test_\w+", path.read_text(), re.MULTILINE)
        assert found == [], f"{path}: what several tests use belongs in a module of its own"


def test_the_rules_can_be_broken():
    records = PACKAGE / "tasks" / "pretraining" / "records.py"
    assert list(violations(records, ["official_bert.tasks.classification.task"]))
    assert not list(violations(records, ["official_bert.tasks.pretraining.task"]))
    loop = PACKAGE / "training" / "loop.py"
    assert list(violations(loop, ["official_bert.tasks.pretraining.task.PretrainingTask"]))
    assert list(violations(PACKAGE / "modeling" / "transformer.py", ["tensorflow"]))
    assert list(violations(PACKAGE / "data" / "schema.py", ["official_bert.modeling.encoder"]))
    assert list(violations(PACKAGE / "support" / "files.py", ["absl.flags"]))


def test_nothing_asks_whether_a_config_has_a_field():
    asked = [
        f"{path.relative_to(ROOT)}: {ast.unparse(node)}"
        for path in modules()
        if part_of(path) in ("options", "training", "tasks", "commands", "inference")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and (name := ast.unparse(node.func)) in ("hasattr", "getattr")
        and len(node.args) == (2 if name == "hasattr" else 3)
        and re.search(r"(^|\.)(self|config|flags)$", ast.unparse(node.args[0]))
    ]
    assert asked == []
