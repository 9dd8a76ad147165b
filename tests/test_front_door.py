"""`import official_bert`: its public names and its cost."""

import inspect
import pydoc
import re

import pytest

import official_bert
from tests.conftest import ROOT, run_program

NAMES = {
    "AdamWeightDecay", "AlbertConfig", "DistilBertConfig", "ElectraConfig", "AttentionReader", "BertConfig",
    "BertEncoder", "ClassificationModel", "CorpusReader", "DatasetTokenizer", "FullTokenizer", "Predictor", "Lamb",
    "LinearWarmupThenConstant", "LinearWarmupThenCosine", "LinearWarmupThenDecay", "MultipleChoiceModel",
    "PretrainingModel", "ReplacedTokenModel", "SentenceModel", "SentencePieceTokenizer", "SpanModel", "TaggingModel",
    "Task", "Trainer", "TrainingPlan", "VectorIndex", "WeightedSum", "__version__", "corpus_parts", "export",
    "load_export", "load_tokenizer", "retrieval_scores", "save_model",
}  # fmt: skip


def test_importing_it_imports_neither_tensorflow_nor_keras():
    program = (
        "import sys, official_bert; dir(official_bert); "
        "print({'tensorflow', 'keras', 'numpy', 'absl'} & set(sys.modules)); "
        "official_bert.BertConfig; print({'tensorflow', 'keras', 'numpy'} & set(sys.modules))"
    )
    assert run_program(program) == "set()\nset()\n"


def test_every_name_is_there_under_its_own_name():
    assert set(official_bert.__all__) == NAMES
    assert set(dir(official_bert)) == NAMES
    for name in NAMES - {"__version__"}:
        assert getattr(official_bert, name).__name__ == name


def functions_of(value):
    """Yield a function, or the public methods and properties of a class and of its bases in this package."""
    bases = inspect.getmro(value) if inspect.isclass(value) else ()
    members = [member for base in bases for member in vars(base).items()] or [(value.__name__, value)]
    for name, member in members:
        member = getattr(member, "fget", None) or getattr(member, "func", None) or getattr(member, "__func__", member)
        is_public = not name.startswith("_") or name in ("__init__", "__call__")
        if inspect.isfunction(member) and is_public and member.__module__.startswith("official_bert"):
            yield member


def test_every_public_name_is_described_and_its_parameters_and_results_have_types():
    values = [getattr(official_bert, name) for name in NAMES - {"__version__"}]
    functions = {function for value in values for function in functions_of(value)}
    described = {*values, *functions}
    assert [value.__qualname__ for value in described if not value.__doc__ and value.__name__ != "__init__"] == []
    untyped = set()
    for function in functions:
        signature = inspect.signature(function)
        types = {name: parameter.annotation for name, parameter in signature.parameters.items()}
        types["return"] = None if function.__name__ == "__init__" else signature.return_annotation
        names = {name for name, kind in types.items() if kind is inspect.Signature.empty} - {"self", "cls"}
        untyped |= {f"{function.__qualname__}: {name}" for name in names}
    assert untyped == set()
    assert len(functions) > 100


def test_another_name_is_refused_as_python_refuses_it():
    with pytest.raises(AttributeError, match="module 'official_bert' has no attribute 'BertAnything'"):
        _ = official_bert.BertAnything
    with pytest.raises(ImportError, match="cannot import name 'BertAnything' from 'official_bert'"):
        exec("from official_bert import BertAnything")


def test_the_names_of_other_libraries_lead_to_ours():
    names = {"BertTokenizerFast": "load_tokenizer", "TFBertModel": "BertEncoder", "pipeline": "Predictor"}
    names |= {"ElectraForPreTraining": "ReplacedTokenModel", "BertForPreTraining": "PretrainingModel"}
    names |= dict.fromkeys(("AutoModelForSequenceClassification", "BertTextClassifier"), "ClassificationModel")
    for name, ours in names.items():
        with pytest.raises(ImportError, match=f"official_bert has no {name}; use official_bert.{ours}$"):
            exec(f"from official_bert import {name}")


def test_help_lists_the_classes_and_begins_with_an_example():
    page = pydoc.render_doc(official_bert, renderer=pydoc.plaintext)
    beginning = page[: page.index("\nCLASSES")]
    assert "official_bert.BertEncoder.from_checkpoint(" in beginning
    for name in NAMES - {"__version__"}:
        assert re.search(rf"\n        (\w+, )*{name}(,| )", beginning)
        assert f"    class {name}(" in page or name[0].islower()


def test_the_pages_need_no_other_import():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "notebooks").glob("*.ipynb"))]
    used = {
        f"{page.name}: {path}"
        for page in pages
        for path in re.findall(r"(?<![\w/.-])official_bert\.(\w+(?:\.\w+)?)", page.read_text())
        + re.findall(r"from official_bert\.? ?import (\w+)", page.read_text())
        if path.split(".")[0] not in NAMES
        and path not in ("inference", "metrics", "visualization")  # for their modules
    }
    assert used == set()
