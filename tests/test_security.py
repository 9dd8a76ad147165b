"""The guarantees of docs/security.md about the code; for hostile files and requests see the tests named there."""

import ast

import pytest

from tests.conftest import ROOT

PROGRAMS = [*ROOT.glob("*.py"), *(ROOT / "official_bert").rglob("*.py"), *(ROOT / "tools").glob("*.py")]
# Sends work to its own processes through private pipes.
MAY_UNPICKLE = ROOT / "official_bert" / "support" / "processes.py"
# Restricts the unpickler to a few operations and names; `checkpoints/test_pytorch_pickle.py` attacks it.
RESTRICTED = ROOT / "official_bert" / "checkpoints" / "pytorch_pickle.py"
RUNS_CODE = {"eval", "exec", "compile", "__import__", "os.system", "os.popen"}
UNPICKLES = {"pickle.load", "pickle.loads", "torch.load", "joblib.load", "marshal.loads", "yaml.load"}


def dangers(tree):
    """Return the calls of a program that could run foreign code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from (name for name in map(ast.unparse, node.bases) if name.endswith("Unpickler"))
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        arguments = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        if name in RUNS_CODE | UNPICKLES:
            yield name
        if arguments.get("shell", "False") != "False" or arguments.get("allow_pickle", "False") != "False":
            yield f"{name}({arguments})"


def test_no_program_runs_or_unpickles_what_it_reads():
    for path in PROGRAMS:
        accepted = {MAY_UNPICKLE: "pickle.loads", RESTRICTED: "pickle._Unpickler"}.get(path)
        assert [name for name in dangers(ast.parse(path.read_text())) if name != accepted] == [], path


@pytest.mark.parametrize(
    "text",
    [
        "eval(x)", "subprocess.run(x, shell=True)", "np.load(x, allow_pickle=True)", "pickle.load(x)",
        "class A(pickle.Unpickler): pass",
    ],
)  # fmt: skip
def test_a_danger_would_be_found(text):
    assert list(dangers(ast.parse(text)))
