"""The layers of the package: a module imports only from its own row or the rows above."""

import ast
import pathlib

from tests.conftest import ROOT

PACKAGE = ROOT / "official_bert"
ROWS = (
    ("errors", "files", "progress", "results", "text_tables", "config"),
    ("tokenization",),
    ("data", "modeling", "metrics"),
    ("optimization", "checkpoints", "training"),
    ("tasks",),
    ("export",),
    ("runs",),
    ("script", "demonstration", "__main__"),
)
ROW_OF = {name: number for number, names in enumerate(ROWS) for name in names}
MUST_NOT_IMPORT_EACH_OTHER = ("data", "modeling", "metrics")


def modules():
    return sorted(path for path in PACKAGE.rglob("*.py"))


def imports(path):
    """Every imported name of a module, wherever the import stands, as dotted paths."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part_of(path):
    return pathlib.PurePath(path.relative_to(PACKAGE)).parts[0].removesuffix(".py")


def violations(path, imported):
    """What is wrong with the imports of one module."""
    part = part_of(path)
    for name in imported:
        if name.startswith("official_bert.") and name != "official_bert.__version__":
            other = name.split(".")[1]
            if ROW_OF[other] > ROW_OF[part]:
                yield f"{part} imports {name}, which is below it"
            if part != other and {part, other} <= set(MUST_NOT_IMPORT_EACH_OTHER):
                yield f"{part} imports {name}, which is beside it"
        if name.startswith("absl.flags") and path.name not in ("flag_binding.py", "script.py"):
            yield "absl.flags is for flag_binding and script"
        top = name.split(".")[0]
        if part == "modeling" and top in ("tensorflow", "tensorflow_text", "jax", "torch"):
            yield f"modeling imports {name}; it is Keras only"
        if part == "tokenization" and top in ("tensorflow", "tensorflow_text") and path.name != "graph_tokenizer.py":
            yield f"tokenization imports {name}; it is plain Python"
        if part == "metrics" and top in ("tensorflow", "keras"):
            yield f"metrics imports {name}; it is NumPy only"


def test_modules_import_only_upwards():
    found = [f"{path.relative_to(ROOT)}: {text}" for path in modules() for text in violations(path, imports(path))]
    assert found == []


def test_every_module_has_a_row():
    assert {part_of(path) for path in modules()} - {"__init__"} <= set(ROW_OF)


def test_gfile_is_used_in_files_alone():
    users = [path.name for path in modules() if "io.gfile" in path.read_text().replace("tf.io.gfile`", "")]
    assert users == ["files.py"]


def test_the_rules_can_be_broken():
    loop = PACKAGE / "training" / "loop.py"
    assert list(violations(loop, ["official_bert.tasks.pretraining.PretrainingTask"]))
    assert list(violations(PACKAGE / "modeling" / "masks.py", ["tensorflow"]))
    assert list(violations(PACKAGE / "data" / "schema.py", ["official_bert.modeling.encoder"]))
    assert list(violations(PACKAGE / "files.py", ["absl.flags"]))
