"""Models from sentence-transformers folders give the same vectors as sentence-transformers itself."""

import dataclasses
import json
import pathlib
import shutil

import numpy as np
import pytest

from official_bert import load_tokenizer
from official_bert.checkpoints.safetensors import write_file
from official_bert.commands import load_command
from official_bert.config.sentence_modules import MODEL, encoder_folder, read_modules
from official_bert.inference.predictor import Predictor
from official_bert.inference.text_encoder import TextEncoder, VectorSettings
from official_bert.modeling.encoder import BertEncoder
from official_bert.options.groups import BatchingSettings
from official_bert.serving.served_model import ServedModel
from official_bert.support.errors import UserError
from official_bert.tasks.sentence_encoder.head import find_head
from official_bert.training.model_files import complete_model_flags
from tests.conftest import GOLDEN, prints_error, run_config

pytestmark = pytest.mark.slow

FOLDERS = GOLDEN / "sentence_transformers"
OLDER = FOLDERS / "older"


def golden(name):
    """Return texts and their vectors."""
    expected = json.loads((FOLDERS / name / "expected.json").read_text())
    return expected["texts"], np.array(expected["vectors"])


def config_of(command, /, **given):
    """Return the config of a command line."""
    config_class = load_command(command).config_class
    given = {name: str(value) if isinstance(value, pathlib.Path) else value for name, value in given.items()}
    values = {field.name: field.default for field in dataclasses.fields(config_class)} | given
    return config_class(**complete_model_flags(config_class, values, given))


def run(command, /, **given):
    run_config(load_command(command), config_of(command, **given))


def exported(folder, export_dir, **given):
    """Return the version exported by the command."""
    run("export_embeddings", init_checkpoint=folder, export_dir=export_dir, **given)
    return export_dir / "1"


def served(version, name):
    """Return an export as a server holds it, and a client of this server."""
    testclient = pytest.importorskip("starlette.testclient")
    from official_bert.serving.app import make_app

    model = ServedModel(str(version.parent), BatchingSettings(num_batch_threads=1))
    return model, testclient.TestClient(make_app(model, name))


def scores_of(output, column):
    """Return the scores in the table that `sentence_similarity` prints, by a column."""
    return {row[column]: float(row[2]) for row in (line.split("\t") for line in output.splitlines()[1:])}


@pytest.mark.parametrize("name", ["dense", "prompt", "poolings", "older"])
def test_vectors_are_those_of_sentence_transformers(name):
    predictor, (texts, expected) = Predictor(FOLDERS / name), golden(name)
    np.testing.assert_allclose(predictor.embed(texts), expected, atol=1e-5)
    assert predictor.embed([]).shape == (0, expected.shape[1])


def test_commands_follow_the_folder_and_a_search_warns_of_another_similarity(folder, tmp_path, capsys, caplog):
    texts, vectors = golden("older")
    lines = [number for number, text in enumerate(texts) if text]
    source, target, expected = tmp_path / "texts.txt", tmp_path / "vectors.npy", vectors[lines]
    source.write_text("\n".join(texts[number] for number in lines))
    files = {"init_checkpoint": OLDER, "input_file": source, "output_file": target}
    run("extract_features", **files, output_format="npy")
    np.testing.assert_allclose(np.load(target)[:, 0], expected, atol=1e-5)
    config = config_of("extract_features", **files, pooling="max", max_seq_length=12)
    assert (config.pooling, config.layers, config.max_seq_length) == ("max", "-1,-2,-3,-4", 12)
    assert config_of("extract_features", **files, layers="-2").pooling == "none"
    assert config_of("sentence_similarity", init_checkpoint=OLDER, sts_file=source).pooling == "mean"  # without effect

    edit(folder / SETTINGS, "similarity_fn_name", "dot")
    run("sentence_similarity", init_checkpoint=folder, candidates_file=source, query=texts[0], top_k=9)
    assert "similarity_fn_name=dot; they are ranked by cosine here" in caplog.text
    found = scores_of(capsys.readouterr().out, 3)
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose([found[str(line + 1)] for line in range(len(lines))], unit @ unit[0], atol=1e-5)


def test_exports_follow_the_folder_and_its_default_prompt(folder, head_of, tmp_path):
    texts, unprompted = golden("older")
    prompts = folder / SETTINGS
    prompts.write_text(json.dumps({"prompts": {"query": "Find: "}, "default_prompt_name": "query"}))
    expected = Predictor(OLDER).embed([f"Find: {text}" for text in texts])
    predictor = Predictor(exported(folder, tmp_path / "serving", export_format="tflite"))
    np.testing.assert_allclose(predictor.embed(texts), expected, atol=1e-5)  # one text exceeds max_seq_length
    with pytest.raises(UserError, match="prompt_name='query' needs the folder of the model"):
        predictor.embed(texts, prompt_name="query")
    np.testing.assert_allclose(Predictor(folder).embed(texts), expected, atol=1e-5)
    assert np.abs(expected - unprompted).max() > 0.01
    assert head_of(folder).fingerprint != head_of(OLDER).fingerprint
    prompts.write_text(json.dumps({"prompts": {}, "default_prompt_name": "query"}))
    with pytest.raises(UserError, match=r"default_prompt_name is 'query', which is not one of its prompts"):
        Predictor(folder).embed(texts)
    for pooling, message in (
        ("max,model", "--pooling=max,model: model cannot be combined with other poolings"),
        ("bm25", "--pooling: 'bm25' is unknown; choose from cls, mean, max, second_to_last"),
    ):
        with prints_error(message):
            exported(OLDER, tmp_path / "none", pooling=pooling)
    assert not (tmp_path / "none").exists()


@pytest.fixture
def sparse_folder(tmp_path):
    return shutil.copytree(FOLDERS / "splade", tmp_path / "splade")


SPARSE = json.loads((FOLDERS / "splade" / "expected.json").read_text())
SPARSE_TEXTS, OF_SPLADE = SPARSE.pop("texts"), SPARSE["max relu"]


@pytest.mark.parametrize("kind", ["max log1p_relu", "sum relu"])
def test_sparse_vectors_and_scores_are_those_of_sparse_encoders(kind, sparse_folder):
    values = dict(zip(("pooling_strategy", "activation_function"), kind.split(), strict=True))
    (sparse_folder / "1_SpladePooling" / "config.json").write_text(json.dumps(values))
    edit(sparse_folder / "modules.json", 0, {"type": "sparse_encoder.models.MLMTransformer", "path": ""})
    vectors = Predictor(sparse_folder).embed(SPARSE_TEXTS)
    np.testing.assert_allclose(vectors, SPARSE[kind]["vectors"], atol=1e-5)
    np.testing.assert_allclose(vectors @ vectors.T, SPARSE[kind]["dot"], rtol=1e-5)
    assert (vectors == 0).any()
    edit(sparse_folder / "1_SpladePooling" / "config.json", "activation_function", "gelu")
    with pytest.raises(UserError, match=r"1_SpladePooling pools with \('(max|sum)', 'gelu'\), which is not supported"):
        Predictor(sparse_folder).embed(SPARSE_TEXTS)


def test_commands_compute_the_sparse_vectors_of_a_masked_lm(sparse_folder, tmp_path, capsys):
    (sparse_folder / "modules.json").unlink()
    found = Predictor(sparse_folder).embed(SPARSE_TEXTS, pooling="splade", max_seq_length=10)
    np.testing.assert_allclose(found, OF_SPLADE["vectors"], atol=1e-5)
    source, target = tmp_path / "texts.txt", tmp_path / "vectors.jsonl"
    source.write_text("\n".join(SPARSE_TEXTS))
    flags = {"init_checkpoint": sparse_folder, "pooling": "splade", "max_seq_length": 10}
    run("extract_features", **flags, layers="-1", input_file=source, output_file=target)
    tokens = list(load_tokenizer(sparse_folder).vocabulary.token_to_id)
    for line, expected in zip(map(json.loads, target.read_text().splitlines()), OF_SPLADE["vectors"], strict=True):
        weights = {token: weight for token, weight in zip(tokens, expected, strict=True) if weight}
        assert line["vector"] == pytest.approx(weights, abs=1e-5)
    query = {"candidates_file": source, "query": SPARSE_TEXTS[0], "index_dir": tmp_path / "index"}
    outputs = []
    for _ in range(2):  # the second time from the index
        run("sentence_similarity", **flags, **query)
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] and not (tmp_path / "index" / "vectors.npy").exists()
    assert outputs[0].split("\t")[2] == "dot_product"
    scores = [score for score, text in zip(OF_SPLADE["dot"][0], SPARSE_TEXTS, strict=True) if text]
    assert [*scores_of(outputs[0], 4).values()] == pytest.approx(sorted(scores, reverse=True), abs=1e-5)
    with pytest.raises(UserError, match="the model was trained with pooling=cls,max,mean, not with splade"):
        Predictor(FOLDERS / "poolings").embed(SPARSE_TEXTS, pooling="splade")
    with pytest.raises(UserError, match="lacks cls/predictions/.*, or was saved without this head"):
        Predictor(OLDER / "0_Transformer").embed(SPARSE_TEXTS, pooling="splade")


# Inference-free SPLADE of sentence-transformers 6.2, with the model of `sparse_folder` for documents: its module and
# router_config.json, the weights of wordpieces in queries, and the vectors of `encode_query`.
ROUTER = {"type": "sentence_transformers.base.modules.router.Router", "path": "", "idx": 0, "name": "0"}
KINDS = {
    "query_0_SparseStaticEmbedding": "sparse_encoder.modules.sparse_static_embedding.SparseStaticEmbedding",
    "document_0_Transformer": "base.modules.transformer.Transformer",
    "document_1_SpladePooling": "sparse_encoder.modules.splade_pooling.SpladePooling",
}
ROUTES = {
    "types": {name: f"sentence_transformers.{kind}" for name, kind in KINDS.items()},
    "structure": {route: [name for name in KINDS if name.startswith(route)] for route in ("query", "document")},
    "parameters": {"default_route": "document", "allow_empty_key": True, "route_mappings": {}},
}
QUERY_WEIGHTS = [0.3, 1.5, 2, 0.7, 0.2, 0.4, 0, 1.25, 0.5, 3]
QUERIES = ["the harbour slept nothing", "woke " * 9 + "the quiet", "slept"]  # the second has 11 wordpieces
OF_QUERIES = [[0, 1.5, 0, 0, 0, 0.4, 0, 1.25, 0, 0], [0, 0, 0, 0, 0, 0, 0, 1.25, 0, 3], [0] * 10]


@pytest.fixture
def router_folder(sparse_folder):
    folder = sparse_folder.parent / "router"
    document, query = folder / "document_0_Transformer", folder / "query_0_SparseStaticEmbedding"
    shutil.copytree(sparse_folder, document)
    (document / "1_SpladePooling").rename(folder / "document_1_SpladePooling")
    (document / "modules.json").unlink()
    (folder / "modules.json").write_text(json.dumps([ROUTER]))
    (folder / "router_config.json").write_text(json.dumps(ROUTES))
    query.mkdir()
    shutil.copy(document / "tokenizer.json", query)
    (query / "config.json").write_text('{"frozen": true}')
    write_file(str(query / "model.safetensors"), {"weight": np.array(QUERY_WEIGHTS, np.float32)})
    return folder


def test_inference_free_splade_gives_queries_static_weights(router_folder):
    predictor = Predictor(router_folder)
    for prompt_name in (None, "document"):
        vectors = predictor.embed(SPARSE_TEXTS, prompt_name=prompt_name)
        np.testing.assert_allclose(vectors, OF_SPLADE["vectors"], atol=1e-5)
    np.testing.assert_allclose(predictor.embed(QUERIES, prompt_name="query"), OF_QUERIES, atol=1e-6)
    for given, message in (
        ({"prompt_name": "q"}, "'q' is unknown; with pooling=model, the prompts are 'query', 'document'"),
        ({"prompt_name": "query", "pooling": "mean"}, "with pooling=mean, the prompts are none"),
    ):
        with pytest.raises(UserError, match=message):
            predictor.embed(QUERIES, **given)
    query, config = router_folder / "query_0_SparseStaticEmbedding", router_folder / "router_config.json"
    vocabulary = (query / "tokenizer.json").read_text()
    (query / "tokenizer.json").write_text(vocabulary.replace("harbour", "harbor"))
    with pytest.raises(UserError, match="vocabulary of .*query_0_SparseStaticEmbedding differs from that of the doc"):
        Predictor(router_folder).embed(QUERIES, prompt_name="query")
    write_file(str(query / "model.safetensors"), {"weight": np.ones(9, np.float32)})
    with pytest.raises(UserError, match="must contain a weight of each of the 10 components of documents"):
        Predictor(router_folder).embed(QUERIES, prompt_name="query")
    edit(config, "parameters", {"default_route": "query"})
    with pytest.raises(UserError, match="router_config.json: default_route is 'query', which is not supported"):
        read_modules(str(router_folder))
    edit(config, "parameters", {})
    edit(config, "structure", {"query": ["document_0_Transformer"], "document": ["document_0_Transformer"]})
    with pytest.raises(UserError, match="is a Router of sentence-transformers, which is not supported; a model is in"):
        encoder_folder(str(router_folder))
    edit(config, "structure", {"query": ["../other"]})
    with pytest.raises(UserError, match="names the module '', whose code is not known"):
        encoder_folder(str(router_folder))


def test_queries_of_inference_free_splade_are_searched_and_served(router_folder, tmp_path, capsys):
    source, texts = tmp_path / "texts.txt", [text for text in SPARSE_TEXTS if text]
    source.write_text("\n".join(texts))
    run("sentence_similarity", init_checkpoint=router_folder, candidates_file=source, query=QUERIES[0])
    found = scores_of(capsys.readouterr().out, 4)
    vectors = np.array([vector for vector, text in zip(OF_SPLADE["vectors"], SPARSE_TEXTS, strict=True) if text])
    for text, score in zip(texts, vectors @ OF_QUERIES[0], strict=True):
        assert found[" ".join(text.split())] == pytest.approx(score, abs=1e-5)

    with prints_error("sparse vectors are exported whole, in float32, and without normalization"):
        exported(router_folder, tmp_path / "other", vector_types="int8")
    model, client = served(exported(router_folder, tmp_path / "serving"), "router")
    request = {"inputs": QUERIES, "prompt_name": "query"}
    answer = client.post("/embed_sparse", json=request).json()
    expected = [{place: weight for place, weight in enumerate(row) if weight} for row in OF_QUERIES]
    assert [{row["index"]: round(row["value"], 6) for row in rows} for rows in answer] == expected
    document = {"inputs": texts, "prompt_name": "document", "normalize": False}
    np.testing.assert_allclose(client.post("/embed", json=document).json(), vectors, atol=1e-5)
    whole = client.post("/embed", json={**request, "normalize": False, "dimensions": 6}).json()
    np.testing.assert_allclose(whole, np.array(OF_QUERIES)[:, :6], atol=1e-6)
    compute = {name: signature.compute for name, signature in model.version.signatures.items()}
    assert compute["text"]({"text": np.zeros(0, object)})["vectors"].shape == (0, 10)
    sparse = compute["sparse_queries"]({"text": np.array([query.encode() for query in QUERIES], object)})
    for ids, values, row in zip(sparse["indices"], sparse["values"], expected, strict=True):
        assert {place: value for place, value in zip(ids, values, strict=True) if value} == pytest.approx(row)


def test_static_vectors_are_those_of_model2vec(sparse_folder, tmp_path):
    # Dot products of the vectors of model2vec 0.10: distill(FOLDERS / "dense", pca_dims=4, quantize_to="float32").
    texts = ["the harbour slept", "", "the quiet harbour woke woke", "slept unknown", "unknown"]
    expected = np.zeros((5, 5))
    rows = [0, 2, 3]
    expected[np.ix_(rows, rows)] = [[1, -0.66204, 0.82452], [-0.66204, 1, -0.87277], [0.82452, -0.87277, 1]]
    given = {"static": True, "pooling": "mean", "vector_size": 4, "vector_types": "int8"}
    version = exported(FOLDERS / "dense", tmp_path / "serving", **given)
    vectors = Predictor(version).embed(texts)
    np.testing.assert_allclose(vectors @ vectors.T, expected, atol=1e-4)
    for folder, given, message in (
        (FOLDERS / "dense", {"vector_size": 6}, "vector_size=6 exceeds the 5 components"),
        (FOLDERS / "dense", {"prefix": "query: "}, "--prefix cannot be used with --static"),
        (FOLDERS / "dense", {"export_precision": "bfloat16"}, "bfloat16 cannot be used with --static"),
        (sparse_folder, {}, "static vectors are computed from dense vectors"),
    ):
        with prints_error(message):
            exported(folder, tmp_path / "none", static=True, **given)


@pytest.mark.endurance
def test_an_export_of_an_encoder_in_bfloat16(tmp_path):
    texts = golden("older")[0]
    given = {"pooling": "cls,max", "normalize": True, "vector_size": 8, "max_seq_length": 9, "prefix": "Find: "}
    found = Predictor(exported(OLDER, tmp_path / "serving", **given, export_precision="bfloat16")).embed(texts)
    expected = Predictor(OLDER).embed([f"Find: {text}" for text in texts], pooling="cls", max_seq_length=9)
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=0.02)


def test_the_encoder_may_be_in_a_subfolder():
    assert encoder_folder(str(OLDER)) == str(OLDER / "0_Transformer")
    tokenizer = load_tokenizer(OLDER)
    assert (tokenizer.settings.do_lower_case, tokenizer.settings.strip_accents) == (True, False)
    assert tokenizer.tokenize("Café CAFE") == ["café", "cafe"]
    assert not find_head(str(OLDER / "0_Transformer"), None).is_default
    with pytest.raises(UserError, match=r"pooling=model needs the folder of a sentence-transformers model"):
        TextEncoder(None, tokenizer, VectorSettings(pooling=MODEL))


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(OLDER, tmp_path / "older")


def edit(file, key, value):
    values = json.loads(file.read_text()) if file.exists() else {}
    values[key] = value
    file.write_text(json.dumps(values))


@pytest.fixture(scope="module")
def head_of():
    """Return a function that returns the head of a folder, on the encoder of `older`."""
    encoder = BertEncoder.from_checkpoint(OLDER)
    return lambda folder: find_head(str(folder), encoder)


def test_keys_of_early_versions(folder, head_of):
    names = ("lasttoken", "weightedmean_tokens", "mean_sqrt_len_tokens", "cls_token")
    keys = {f"pooling_mode_{name}": True for name in names} | {"pooling_mode_mean_tokens": False}
    (folder / POOLING).write_text(json.dumps(keys))
    poolings = read_modules(str(folder)).poolings
    assert poolings == ("cls", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")  # the order of concatenation
    modes = {"cls_token": True, "mean_tokens": True, "max_tokens": False, "mean_sqrt_len_tokens": False}
    (folder / POOLING).write_text(json.dumps({f"pooling_mode_{mode}": value for mode, value in modes.items()}))
    edit(folder / MODULES, 2, module(path="2_Normalize"))
    head = head_of(folder)
    assert (head.model.poolings, head.model.width) == (("cls", "mean"), 16)
    pooled = np.random.default_rng(0).standard_normal((2, 16)).astype(np.float32)
    np.testing.assert_allclose(np.linalg.norm(head.model.after_pooling(pooled), axis=1), 1, atol=1e-6)
    assert head.fingerprint != head_of(OLDER).fingerprint


def test_activations_are_those_of_pytorch(folder, head_of):
    golden, refused, prints = json.loads((FOLDERS / "activations.json").read_text()), [], {}
    for name, expected in golden["values"].items():
        edit(folder / DENSE, "activation_function", name)
        try:
            head = head_of(folder)
            (layer,) = head.model.head_layers
        except UserError:
            refused.append(name.rpartition(".")[2])
        else:
            found = layer.activation(np.array([golden["inputs"]], np.float32))
            np.testing.assert_allclose(found[0], expected, atol=1e-6, err_msg=name)
            prints[head.fingerprint] = expected
    assert refused == ["RReLU", "Softmin"]
    assert len(prints) == len({*map(tuple, prints.values())}) == 22  # ELU and CELU are the same


def test_pooling_leaves_the_prompt_out(tmp_path, head_of):
    folder, (texts, expected) = shutil.copytree(FOLDERS / "prompt", tmp_path / "prompt"), golden("prompt")
    _, client = served(exported(folder, tmp_path / "serving"), "prompt")
    lines = [number for number, text in enumerate(texts) if text]
    request = {"inputs": [texts[number] for number in lines], "normalize": False}
    np.testing.assert_allclose(client.post("/embed", json=request).json(), expected[lines], atol=1e-5)
    of_text = client.post("/v1/models/prompt:predict", json={"signature_name": "text", "inputs": texts}).json()
    np.testing.assert_allclose(of_text["outputs"], expected, atol=1e-5)
    assert "the model has no prompts" in client.post("/embed", json={**request, "prompt_name": "other"}).text
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("anchor\tpositive\nslept\tthe harbour\n")
    with prints_error("mining is not supported for a model that leaves the prompt out"):
        run("mine_hard_negatives", init_checkpoint=folder, pairs_file=pairs, output_file=tmp_path / "mined.tsv")
    found = []
    for is_pooled in (False, True):
        edit(folder / POOLING, "include_prompt", is_pooled)
        head = head_of(folder)
        found.append(head.fingerprint)
        assert head.prompts.are_pooled == is_pooled
    assert found[0] != found[1]


def test_vectors_are_truncated_as_the_folder_says(folder, head_of):
    whole = head_of(folder).fingerprint
    edit(folder / SETTINGS, "truncate_dim", 3)
    texts, vectors = golden("older")
    predictor = Predictor(folder)
    np.testing.assert_allclose(predictor.embed(texts), vectors[:, :3], atol=1e-5)
    assert predictor.embed(texts, pooling="mean").shape == (len(texts), 8)  # an explicit pooling takes precedence
    head = head_of(folder)
    assert (head.model.width, head.fingerprint != whole) == (3, True)
    assert type(head.model).from_config(head.model.get_config()).width == 3


MODULES, POOLING, DENSE = "modules.json", "1_Pooling/config.json", "2_Dense/config.json"
TEXTS, SETTINGS = "0_Transformer/sentence_bert_config.json", "config_sentence_transformers.json"


def module(kind="Normalize", **changes):
    return {"type": f"sentence_transformers.models.{kind}", "path": ""} | changes


@pytest.mark.parametrize(
    ("file", "key", "value", "message"),
    [
        (POOLING, "pooling_mode", "attention", "has the pooling 'attention', .* pooling=mean"),
        (POOLING, "pooling_mode", 3, "1_Pooling/config.json: pooling_mode is 3; it must be text or a list"),
        (MODULES, 2, module("CNN"), "older has a CNN, which is not"),
        (MODULES, 2, "Dense", r"modules.json: \[2\] is 'Dense'; it must be an object"),
        (MODULES, 2, module(path="../2_Dense"), r"path '\.\./2_Dense'; only folders within"),
        (MODULES, 1, module(), "does not begin with a Transformer and a Pooling"),
        (MODULES, 2, module("Dense", path="5_Dense"), "read the settings of sentence-transformers .*5_Dense/"),
        (MODULES, 2, module("LayerNorm", path="2_Dense"), "in_features is 24, which is not supported"),
        (MODULES, 2, module(type="custom_st.Dense"), "names the module 'custom_st.Dense', whose code is"),
        (MODULES, 2, module(kwargs=["task"]), r"modules.json: kwargs is \['task'\], which is not"),
        (DENSE, "activation_function", "torch.os.system", "the activation_function is 'torch.os.system'"),
        (DENSE, "use_residual", True, "2_Dense/config.json: use_residual is True, which is not supported"),
        (DENSE, "module_input_name", "token_embeddings", "module_input_name is 'token_embeddings', which is not supp"),
        (DENSE, "setting_of_the_future", 1, "setting_of_the_future is 1, which is not supported"),
        (POOLING, "gate", "x", "1_Pooling/config.json: gate is 'x', which is not supported"),
        (SETTINGS, "max_active_dims", 8, "config_sentence_transformers.json: max_active_dims is 8, which is not supp"),
        (SETTINGS, "truncate_dim", 0, "truncate_dim is 0; it must be at least 1"),
        (TEXTS, "query_length", 32, "sentence_bert_config.json: query_length is 32, which is not supported"),
        (TEXTS, "modality_config", {"image": {}}, "modality_config is .*, which is not supported"),
        (TEXTS, "max_seq_length", "8", "max_seq_length is '8'; it must be a number"),
    ],
)
def test_damaged_and_unsupported_files_are_errors(folder, head_of, file, key, value, message):
    edit(folder / file, key, value)
    with pytest.raises(UserError, match=message):
        _ = [head_of(folder).model, head_of(folder).max_seq_length]


def test_weights_of_wrong_shapes_are_errors(folder, head_of):
    def assert_refused(message):
        with pytest.raises(UserError, match=message):
            _ = head_of(folder).model

    edit(folder / POOLING, "pooling_mode", "mean")
    assert_refused(r"2_Dense must contain one dense layer with 8 inputs; linear\.weight has shape \[7, 24\]")
    shutil.copytree(OLDER, folder, dirs_exist_ok=True)
    (folder / "2_Dense" / "pytorch_model.bin").unlink()
    assert_refused(r"2_Dense has no model\.safetensors")
    for content, message in (
        ({}, "list of modules must be a list"),
        ([], "names 0 modules; it must name 1 to 32"),
        ([module()] * 20_000, "names 20,000 modules; it must name 1 to 32"),
    ):
        (folder / MODULES).write_text(json.dumps(content))
        assert_refused(message)


def test_mining_uses_the_prompts_of_the_folder(folder, tmp_path, monkeypatch):
    settings = {"prompts": {"query": "Find: ", "document": "Text: "}, "default_prompt_name": "query"}
    (folder / SETTINGS).write_text(json.dumps(settings))
    (tmp_path / "pairs.tsv").write_text("anchor\tpositive\nthe town\ta river\na house\tthe sea\n")
    read = []
    encoded = TextEncoder._encoded
    monkeypatch.setattr(
        TextEncoder, "_encoded", lambda self, text: read.append(self._prompt + text.text_a) or encoded(self, text)
    )
    files = {"pairs_file": tmp_path / "pairs.tsv", "output_file": tmp_path / "mined.tsv"}
    run("mine_hard_negatives", init_checkpoint=folder, **files)
    assert read == ["Text: a river", "Text: the sea", "Find: the town", "Find: a house"]
    read.clear()
    run("mine_hard_negatives", init_checkpoint=folder, **files, passage_prefix="")
    assert read[:2] == ["a river", "the sea"]
