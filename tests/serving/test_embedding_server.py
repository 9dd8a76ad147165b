"""Vectors and rankings as their clients get them, from a real server process with exports of tiny models."""

import concurrent.futures
import json
import os
import pathlib
import socket

import numpy as np
import pytest
import tensorflow as tf

from official_bert.options.groups import BatchingSettings
from official_bert.serving import batching, text_answers
from official_bert.serving.batching import QueueFullError, TooManyBytesError
from official_bert.serving.served_model import ServedModel
from tests.exports import LABELS, TOLERANCE
from tests.serving.server_process import Server
from tests.serving.tiny_exports import PROMPTS

pytest.importorskip("uvicorn")
pytest.importorskip("starlette.testclient")
openai = pytest.importorskip("openai")
huggingface_hub = pytest.importorskip("huggingface_hub")

from starlette.testclient import TestClient  # noqa: E402

from official_bert.serving.app import make_app  # noqa: E402
from official_bert.serving.embedding_endpoints import refuse  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unoptimized_graphs")]

# Texts of different lengths, unsorted; one exceeds the models' 32 tokens.
TEXTS = ["the town", "Zoë’s ﬁne café, 東京 tower", "bright word " * 40, "a", " ", "the river " * 10, "the town"]
LENGTH, WIDTH = 32, 16
PREFIX, QUERY = PROMPTS.default, PROMPTS.by_name["query"]  # one token and two
TRUNCATED = {"extra_body": {"truncate": True}}


@pytest.fixture(scope="module")
def export_dir(tmp_path_factory, write_export):
    folder = tmp_path_factory.mktemp("serving") / "sentences"
    write_export(folder, "sentence_encoder", prompts=PROMPTS)
    return str(folder)


@pytest.fixture(scope="module")
def server(export_dir, tmp_path_factory):
    log_file = tmp_path_factory.mktemp("log") / "log"
    server = Server(export_dir, log_file, accept_token_ids=True, batch_timeout_micros=20000, max_batch_size=200)
    yield server
    assert server.end() == 0, server.log
    assert "Traceback" not in server.log


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def hub_client(server):
    return huggingface_hub.InferenceClient(f"http://127.0.0.1:{server.port}")


@pytest.fixture(scope="module")
def signature(signatures):
    """Return a function that calls a signature of the export."""

    def call(name, **inputs):
        answer = signatures[name](**{key: tf.constant(values) for key, values in inputs.items()})
        return {key: values.numpy() for key, values in answer.items()}

    return call


@pytest.fixture(scope="module")
def expected(signature):
    """Return the unit vectors of `TEXTS` and the number of tokens of each."""
    vectors = signature("text", text=TEXTS)["vectors"]
    assert np.abs(vectors[0] - vectors[1:6]).max(axis=1).min() > 1e-2  # the texts matter
    return vectors, signature("tokenize", text=TEXTS)["input_mask"].sum(axis=1)


def post(server, path, content):
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    status, answer = server.send("POST", path, body)
    return status, json.loads(answer)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)


def test_the_client_of_openai(client, expected):
    vectors, num_tokens = expected
    assert [model.id for model in client.models.list()] == ["sentences"]
    for options in (TRUNCATED, {"encoding_format": "float", **TRUNCATED}):  # the client asks for base64 by default
        answer = client.embeddings.create(model="sentences", input=TEXTS, **options)
        assert_close([row.embedding for row in answer.data], vectors)
        assert [row.index for row in answer.data] == list(range(len(TEXTS))) and answer.model == "sentences"
        assert answer.usage.prompt_tokens == answer.usage.total_tokens == num_tokens.sum()
    answer = client.embeddings.create(model="sentences", input=TEXTS[1], dimensions=5)
    assert_close([answer.data[0].embedding], unit(vectors[1:2, :5]))


def test_token_ids_are_read_if_the_server_accepts_them(client, server, signature, expected):
    ids = signature("tokenize", text=TEXTS[:2])
    tokens = [row[2 : number - 1].tolist() for row, number in zip(ids["input_ids"], expected[1], strict=False)]
    answer = client.embeddings.create(model="sentences", input=[*tokens, tokens[1] * 20], **TRUNCATED)
    assert_close([row.embedding for row in answer.data[:2]], expected[0][:2])
    assert answer.usage.prompt_tokens == expected[1][:2].sum() + LENGTH
    answer = client.embeddings.create(model="sentences", input=tokens[0])
    assert_close([answer.data[0].embedding], expected[0][:1])
    prompted = post(server, "/embed", {"inputs": tokens[:1], "prompt_name": "query"})[1]
    assert_close(prompted, signature("text", text=[f"river {TEXTS[0]}"])["vectors"])


def test_sparse_vectors_as_at_tei(server, tmp_path, write_export):
    """Each text has 1,182 weights, so that fewer texts fit into an answer than of other models."""
    options = {"poolings": ["splade"], "layers_after": (), "prompts": PROMPTS._replace(default="")}
    write_export(tmp_path / "sparse", "sentence_encoder", **options)
    served = ServedModel(str(tmp_path / "sparse"), BatchingSettings(num_batch_threads=1, max_batch_size=4096))
    client, predict = TestClient(make_app(served, "sentences")), "/v1/models/sentences:predict"

    def answers(path, **content):
        answer = client.post(path, json=content)
        return answer.status_code, answer.json()

    vectors = np.array(answers(predict, signature_name="text", inputs=TEXTS)[1]["outputs"])
    sparse = answers(predict, signature_name="sparse_vectors", inputs=TEXTS)[1]["outputs"]
    status, rows = answers("/embed_sparse", inputs=TEXTS)
    assert status == 200 and 0 < min(map(len, rows)) <= max(map(len, rows)) < vectors.shape[1]
    for row, ids, values, vector in zip(rows, sparse["indices"], sparse["values"], vectors, strict=True):
        place = np.flatnonzero(vector)
        assert [weight["index"] for weight in row] == ids[: len(place)] == place.tolist()
        assert_close([weight["value"] for weight in row], vector[place])
        assert_close(values, [*vector[place], *[0] * (len(values) - len(place))])
    assert answers("/", inputs=TEXTS[0])[1] == answers("/embed_sparse", inputs=TEXTS[:1])[1]
    prompted = answers("/embed_sparse", inputs=TEXTS[0], prompt_name="query")[1]
    assert prompted == answers("/embed_sparse", inputs=QUERY + TEXTS[0])[1] != rows[:1]
    assert_close(answers("/embed", inputs=TEXTS, normalize=False)[1], vectors)
    assert client.get("/info").json()["model_type"] == {"embedding": {"pooling": "splade"}}
    for path, content, status, message in (
        ("/embed", {"inputs": "a"}, 424, "`normalize` is not available for SPLADE models"),
        ("/embed_all", {"inputs": "a"}, 424, "`embed_all` is not available for SPLADE models"),
        ("/embed_sparse", {"inputs": ["a"] * 1775}, 413, "the request has 1775 inputs; at most 1774"),
        (predict, {"signature_name": "text", "inputs": ["a"] * 1775}, 400, "has 1775 examples; at most 1774 are allow"),
    ):
        found, answer = answers(path, **content)
        assert found == status and message in answer["error"]
    status, answer = post(server, "/embed_sparse", {"inputs": "a"})
    assert status == 424 and answer["error"] == "Model is not an embedding model with SPLADE pooling"


@pytest.fixture(scope="module")
def served(export_dir):
    return ServedModel(export_dir, BatchingSettings(num_batch_threads=1))


def test_token_ids_are_refused_by_default(served):
    """LangChain sends ids of another vocabulary by default, which would give wrong vectors without a word."""
    http_client = TestClient(make_app(served, "sentences"), "http://server")
    client = openai.OpenAI(base_url="http://server/v1", api_key="none", max_retries=0, http_client=http_client)
    for input_ in ([5], [[5, 6]]):
        with pytest.raises(openai.BadRequestError, match="ctx_length=False.*with accept_token_ids") as caught:
            client.embeddings.create(model="sentences", input=input_)
        assert caught.value.param == "input"
    for mixed in ([["a"]], ["a", 5]):
        assert "string" in http_client.post("/embed", json={"inputs": mixed}).json()["error"]
    answer = http_client.post("/embed", json={"inputs": [[5]]})
    assert answer.status_code == 422 and "check_embedding_ctx_length=False" in answer.json()["error"]


def test_an_export_whose_tokenizer_cannot_be_loaded_is_no_failure_of_the_server(served, export_dir, monkeypatch):
    monkeypatch.setattr(text_answers, "_READINGS", {})
    vocabulary = pathlib.Path(export_dir, "1", "assets", "vocab.txt")
    content = vocabulary.read_bytes()
    vocabulary.write_bytes(b"")
    answer = TestClient(make_app(served, "sentences")).post("/embed", json={"inputs": "a"})
    vocabulary.write_bytes(content)
    assert answer.status_code == 424 and "the texts cannot be tokenized" in answer.json()["error"]


def test_vectors_of_tokens(server, signature, expected):
    """All tokens that the model reads have a vector, also those of the prompt and [CLS] and [SEP]."""
    ids = signature("tokenize", text=TEXTS)
    vectors = signature("token_vectors", **ids)["token_vectors"]
    status, answer = post(server, "/embed_all", {"inputs": TEXTS})
    assert status == 200 and [len(rows) for rows in answer] == expected[1].tolist()
    for found, row, mask in zip(answer, vectors, ids["input_mask"], strict=True):
        assert_close(found, row[mask == 1])
    assert np.abs(vectors[0, 0] - vectors[1, 0]).max() > 1e-2  # the texts matter
    (prompted,) = post(server, "/embed_all", {"inputs": TEXTS[0], "prompt_name": "query"})[1]
    assert len(prompted) == len(answer[0]) + 1
    for direction in ("left", "right"):
        request_ = {"inputs": TEXTS[2], "truncation_direction": direction}
        (kept,) = post(server, "/embed_all", request_)[1]
        assert len(kept) == LENGTH
        assert np.allclose(kept, answer[2], atol=TOLERANCE) == (direction == "right")


def test_vectors_of_tokens_are_limited_together(served, monkeypatch):
    client, text = TestClient(make_app(served, "sentences")), {"inputs": "the town"}

    def refused(status, message):
        answer = client.post("/embed_all", json=text)
        assert answer.status_code == status and message in answer.json()["error"]

    with monkeypatch.context() as changes:
        changes.setattr(batching, "_LARGE", 0)
        changes.setattr(batching, "_MOST_BYTES_TOGETHER", 4 * 32 * 22)  # one answer is larger, by its request
        refused(429, "many large requests are being answered; try again later")
    assert client.post("/embed_all", json=text).status_code == 200  # nothing is held
    with monkeypatch.context() as changes:
        changes.setattr(text_answers, "MOST_CELLS", 4 * 32 - 1)
        text["inputs"] = ["the town"] * 9  # one text of the longest length always fits
        refused(413, f"the inputs have 45 tokens in total; at most {LENGTH} are allowed here")
    monkeypatch.delitem(served.version.signatures, "token_vectors")
    refused(424, "the export has no vectors of tokens; export the model again")


@pytest.mark.parametrize(
    ("request_", "status", "name", "message"),
    [
        ({"input": "a", "encoding_format": "int8"}, 400, "encoding_format", "input should be 'float' or 'base64'"),
        ({"input": "a", "dimensions": 0}, 400, "dimensions", "dimensions must be from 1 to 16"),
        ({"input": "a", "model": "other"}, 404, "model", "the model 'other' does not exist; this server has sentences"),
        ({"input": ["a", ""]}, 400, "input", "input 1 is empty"),
        ({"input": ["a", None]}, 400, "input", "input must be a string or a list of strings"),
        ({"input": [[5], [True]]}, 400, "input", "must be a list of token ids, or such a list for each text"),
        ({"input": [5, 1182]}, 400, None, "input_ids must be from 0 to 1181, but is from"),
        ({"input": [5, 2**70]}, 400, None, "must be ids from 0"),
        ({"input": [[5] * 30]}, 400, "input", "maximum context length is 32 tokens"),
        ({"input": ["a"] * 401}, 400, "input", "the request has 401 inputs; at most 400 are allowed"),
        ({"input": TEXTS}, 400, "input", "maximum context length is 32 tokens; input 2 has more"),
    ],
)  # fmt: skip
def test_the_openai_client_gets_errors(client, request_, status, name, message):
    with pytest.raises(openai.APIStatusError) as caught:
        client.embeddings.create(**{"model": "sentences", **request_})
    error = caught.value
    assert error.status_code == status and error.type == "invalid_request_error" and error.param == name
    assert message in error.body["message"]
    is_long = "maximum context length" in message
    assert error.code == ("model_not_found" if status == 404 else "context_length_exceeded" if is_long else None)


def test_the_client_of_hugging_face(hub_client, server, expected):
    vectors, _ = expected
    assert_close(hub_client.feature_extraction(TEXTS), vectors)
    embed_client = huggingface_hub.InferenceClient(f"http://127.0.0.1:{server.port}/embed")
    options = {"truncate": True, "truncation_direction": "right", "dimensions": 7}
    found = embed_client.feature_extraction(TEXTS[0], normalize=True, **options)
    assert_close(found, unit(vectors[:1, :7]))
    assert_close(embed_client.feature_extraction(TEXTS[0], normalize=False, dimensions=7), vectors[:1, :7])
    similarities = hub_client.sentence_similarity(TEXTS[0], other_sentences=TEXTS[1:])
    assert_close(similarities, vectors[1:] @ vectors[0])
    with pytest.raises(huggingface_hub.errors.HfHubHTTPError) as caught:
        hub_client.feature_extraction(TEXTS, truncate=False)
    assert caught.value.response.status_code == 413


@pytest.mark.parametrize(
    ("path", "content", "status", "kind", "message"),
    [
        ("/embed", {"inputs": []}, 400, "empty", "the inputs must not be empty"),
        ("/embed", {"inputs": ["a"] * 401}, 413, "validation", "has 401 inputs; at most 400 are allowed"),
        ("/embed", {"inputs": "a b " * 250_000, "truncate": False}, 413, "validation", "context length is 32 tokens"),
        ("/embed", {"inputs": "東京" * 500, "truncate": False}, 413, "validation", "context length is 32 tokens"),
        ("/embed", {"inputs": "a", "truncate": "no"}, 422, "validation", "truncate input should be a valid boolean"),
        ("/embed", {"inputs": "a", "truncation_direction": "middle"}, 422, "validation", "should be 'left' or 'right'"),
        ("/embed", {"inputs": "a", "prompt_name": "q"}, 422, "validation", "prompt_name 'q' is unknown; the model has"),
        ("/embed", {}, 422, "validation", "inputs field required"),
        ("/embed", b"{", 422, "validation", "the request is not JSON"),
        ("/embed", b"a" * (1 << 26) + b"a", 413, "validation", "more than 67108864 bytes"),
        ("/similarity", {"inputs": {"source_sentence": "a"}}, 422, "validation", "inputs.sentences field required"),
        ("/rerank", {"query": "a", "texts": "b", "top_n": 0}, 422, "validation", "top_n input should be greater than"),
        ("/predict", {"inputs": [["a"], "b"]}, 422, "validation", "inputs must be a text, a pair of texts, or a list"),
        ("/predict", {"inputs": "a"}, 424, "backend", "does not classify texts"),
        ("/tokenize", {"inputs": "a" * (1 << 21)}, 413, "validation", "at most 1048576 bytes in total"),
        ("/decode", {"ids": [5, 1 << 70]}, 422, "validation", "ids must be those of tokens, from 0 to 1181"),
        ("/similarity", {"inputs": "a"}, 422, "validation", "inputs must be an object"),
        ("/rerank", {"query": "a", "texts": ["b"]}, 424, "backend", "cannot rank texts"),
    ],
)  # fmt: skip
def test_clients_of_text_embeddings_inference_get_errors(server, path, content, status, kind, message):
    found, answer = post(server, path, content)
    assert (found, set(answer), answer["error_type"]) == (status, {"error", "error_type"}, kind), answer
    assert message in answer["error"]


def test_an_overload_has_a_status_that_clients_retry():
    for error in (QueueFullError("9 examples are waiting"), TooManyBytesError("many large requests")):
        answer = refuse(error, is_openai=True)
        assert answer.status_code == 503 and json.loads(answer.body)["error"]["type"] == "server_error"
        answer = refuse(error, is_openai=False)
        assert answer.status_code == 429 and json.loads(answer.body)["error_type"] == "overloaded"


def test_unknown_keys_and_lone_surrogates_are_ignored(client, server, expected):
    """Keys are neither refused nor repeated; nothing that JSON can hold is an error of the server."""
    keys, vectors = {"extra": 1, "\ud800": None, "user": 5}, expected[0]
    answer = client.embeddings.create(model="sentences", input=TEXTS[0], extra_body={"extra": 1, "dimensions": None})
    assert_close([answer.data[0].embedding], vectors[:1])
    text, other = f"\ud800{TEXTS[0]}\udfff", f"{TEXTS[1]}\ud83d"
    sentences = {"source_sentence": text, "sentences": [other], **keys}
    for path, content, found in (
        ("/embed", {"inputs": [text, other]}, vectors[:2]),
        ("/similarity", {"inputs": sentences}, vectors[1:2] @ vectors[0]),
        ("/", {"inputs": text, "parameters": {}}, vectors[:1]),
    ):
        status, answer = post(server, path, {**content, **keys})
        assert status == 200, answer
        assert_close(answer, found)
    for path, content in (
        ("/v1/embeddings", {"input": [text], "model": "\ud800"}),
        ("/embed", {"inputs": text, "prompt_name": "\ud800"}),
        ("/embed", {"inputs": text, "truncation_direction": "\ud800"}),
    ):
        status, answer = post(server, path, {**content, **keys})
        assert 400 <= status < 500 and "extra" not in str(answer)


def test_tokens_and_their_texts(server, signature):
    status, answer = post(server, "/tokenize", {"inputs": TEXTS[:2]})
    assert status == 200
    ids = signature("tokenize", text=TEXTS[:2])
    for tokens, row, mask, text in zip(answer, ids["input_ids"], ids["input_mask"], TEXTS, strict=False):
        assert [token["id"] for token in tokens] == row[mask == 1].tolist()
        assert tokens[0] == {"id": row[0], "text": "[CLS]", "special": True, "start": None, "stop": None}
        assert all(token["text"] == (PREFIX + text)[token["start"] : token["stop"]] for token in tokens[1:-1])
    bare = post(server, "/tokenize", {"inputs": TEXTS[0], "add_special_tokens": False, "prompt_name": "query"})[1]
    assert [token["text"] for token in bare[0]] == ["the", "river", "the", "town"]
    ids = [[token["id"] for token in tokens] for tokens in answer]
    assert post(server, "/decode", {"ids": ids[0]}) == (200, ["the the town"])
    texts = post(server, "/decode", {"ids": ids, "skip_special_tokens": False})[1]
    assert texts[0] == "[CLS] the the town [SEP]" and len(texts) == 2


def test_prompts_and_the_ends_of_texts(hub_client, server, signature, expected):
    """The prompt is the export's prefix and a word; truncation at the left leaves the prefix and 29 words."""
    prompted = signature("text", text=[f"river {text}" for text in TEXTS])["vectors"]
    assert_close(hub_client.feature_extraction(TEXTS, prompt_name="query"), prompted)
    assert np.abs(prompted - expected[0]).max() > 1e-2
    end = "the town " * 14 + "a"
    for options, vectors in (({}, expected[0]), ({"prompt_name": "query"}, prompted)):
        kept = signature("text", text=[end])["vectors"]
        texts = ["a " * 100_000 + PREFIX + end, TEXTS[0]]
        found = hub_client.feature_extraction(texts, truncation_direction="left", truncate=True, **options)
        assert_close(found, [kept[0], vectors[0]])
    for text in ("\ud800a", "a" * 300_000):
        assert post(server, "/embed", {"inputs": text, "truncation_direction": "left"})[0] == 200


def test_a_million_characters_are_truncated(server):
    whole, beginning = ("a b " * number for number in (250_000, 20))
    status, answer = post(server, "/embed", {"inputs": [whole, beginning]})
    assert status == 200
    assert_close(answer[0], answer[1])
    for text in ("a " * (LENGTH - 3), "東" * (LENGTH - 3)):  # of the maximum length
        assert post(server, "/embed", {"inputs": text, "truncate": False})[0] == 200
        assert post(server, "/embed", {"inputs": f"{text} a", "truncate": False})[0] == 413


def test_concurrent_requests_share_batches_and_an_invalid_one_fails_alone(client, server, signature, expected):
    post(server, "/embed", {"inputs": "a"})  # the first request determines the model's input format
    names = ["batch_examples_sum", "batch_examples_count", "batch_positions_sum"]
    numbers = [number % len(TEXTS) for number in range(40)]

    def counted():
        return np.array([server.metrics()[name] for name in names])

    def ask(input_):
        return client.embeddings.create(model="sentences", input=input_, **TRUNCATED)

    before = counted()
    with concurrent.futures.ThreadPoolExecutor(len(numbers)) as executor:
        wrong, *answers = [executor.submit(ask, input_) for input_ in [[5, 5000], *(TEXTS[each] for each in numbers)]]
    assert isinstance(wrong.exception(), openai.BadRequestError)
    assert_close([answer.result().data[0].embedding for answer in answers], expected[0][numbers])
    num_examples, num_batches, num_positions = counted() - before
    # Texts are tokenized one request at a time; all of these are vectors or tokens of a text.
    assert num_examples == 2 * len(numbers) + 1 and num_batches < num_examples
    assert num_positions > 0 and server.metrics()["queue_examples"] == 0
    # 200 texts of one request, more than the 32 examples per batch of other requests, fill batches by their tokens.
    texts, before = [f"{'the town ' * (number % 14)}a" for number in range(200)], counted()
    answer = ask(texts)
    assert (counted() - before)[1] <= 3  # tokens, and two batches
    assert_close([row.embedding for row in answer.data], signature("text", text=texts)["vectors"])


def test_information_health_and_metrics(server):
    status, info = server.get("/info")
    assert status == 200 and info["model_id"] == info["served_model_name"] == "sentences"
    assert info["model_type"] == {"embedding": {"pooling": "mean"}}
    assert (info["max_input_length"], info["max_client_batch_size"], info["dimensions"]) == (LENGTH, 400, WIDTH)
    assert server.send("GET", "/")[1].startswith(b"POST /v1/models/sentences:predict asks")
    assert server.send("GET", "/health") == (200, b"")
    assert server.get("/v1/models")[1]["models"] == ["sentences"]
    before = server.metrics()
    server.outputs("text", {"text": ["a"]})
    for inputs in ("a", ""):
        post(server, "/embed", {"inputs": inputs})
    for method, path in (("GET", "/nowhere"), ("PUT", "/embed"), ("GET", "/v1/models/nowhere:1")):
        server.send(method, path)
    after = server.metrics()
    for name, number in (
        ('requests_total{method="POST",path="/embed",status="200"}', 1),
        ('requests_total{method="POST",path="/embed",status="400"}', 1),
        ('requests_total{method="POST",path="/v1/models/{model_name}:predict",status="200"}', 1),
        ('requests_total{method="other",path="other",status="404"}', 1),
        ('requests_total{method="other",path="/embed",status="405"}', 1),
        ('requests_total{method="GET",path="/v1/models/{model_name}",status="404"}', 1),
        ('request_seconds_count{method="POST",path="/embed"}', 2),
    ):
        assert after[name] - before.get(name, 0) == number, name
    assert not any("nowhere" in name for name in after)


PASSAGES = ["a river", "the town", "", "bright word " * 40, "the town a river"]
QUERIES = ["the town", "bright word " * 40, " ", "the " * 29, "the " * 30]  # 30 tokens leave room for no other text


def ranked(scores):
    return np.argsort(-scores, kind="stable").tolist()


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("number", "labels", "relevant", "options"),
    [
        (3, ("entailment", "not_entailment"), 0, {"max_windows": 3}), (5, (), None, {"activation": "Sigmoid"}),
        (2, ("0", "1"), 1, {}), (4, (), None, {}),
    ],
)  # fmt: skip
def test_ranking_by_a_classifier_of_pairs(number, labels, relevant, options, server, export_dir, write_export):
    """Serve new versions, whose input formats are determined again; these must be the last tests of the server."""
    server.wait_for_version(os.path.basename(write_export(export_dir, seed=number, labels=labels, **options)))
    for query in QUERIES:
        pairs = {"text_a": [query] * len(PASSAGES), "text_b": PASSAGES}
        found = server.outputs("text", pairs)
        found = found if labels or options else {"scores": found}  # the only output has no name in the answer
        outputs = {name: np.array(values) for name, values in found.items()}
        if labels:
            scores = outputs["probabilities"][:, relevant]
            raw_scores = outputs["logits"][:, relevant] - outputs["logits"][:, 1 - relevant]
        else:
            raw_scores = outputs["raw_scores" if options else "scores"]
            scores = 1 / (1 + np.exp(-raw_scores))
            if options:
                np.testing.assert_allclose(outputs["scores"], scores, atol=1e-6)
        request = {"query": query, "texts": PASSAGES}
        for more, values in (({}, scores), ({"raw_scores": True, "return_text": True, "top_n": 3}, raw_scores)):
            status, answer = post(server, "/rerank", {**request, **more})
            assert status == 200, answer
            assert [row["index"] for row in answer] == ranked(values)[: more.get("top_n")]
            for row in answer:
                assert row["score"] == pytest.approx(values[row["index"]], abs=TOLERANCE)
                assert row.get("text") == (PASSAGES[row["index"]] if more else None)
        documents = [{"text": PASSAGES[0]}, *PASSAGES[1:]]  # a form of Cohere's and Jina's clients
        request = {"query": query, "documents": documents, "model": "sentences", "top_n": 2, "max_tokens_per_doc": 99}
        for path, more in (("/v2/rerank", {}), ("/v1/rerank", {"return_documents": True}), ("/rerank", {})):  # LiteLLM
            results = post(server, path, {**request, **more})[1]["results"]
            assert [row["index"] for row in results] == ranked(scores)[:2]
            for row in results:
                assert row["relevance_score"] == pytest.approx(scores[row["index"]], abs=TOLERANCE)
                assert row.get("document") == ({"text": PASSAGES[row["index"]]} if more else None)
    request = {"query": "a", "documents": ["b"], "model": "sentences"}
    for path, content, status, message in (
        ("/rerank", {"query": QUERIES[0], "texts": PASSAGES, "truncate": False}, 413, "is 32 tokens; input 3 has"),
        ("/rerank", {"query": QUERIES[1], "texts": ["", "a"], "truncate": False}, 413, "is 32 tokens; input 0 has"),
        ("/rerank", {"query": "a", "texts": []}, 400, "must not be empty"),
        ("/v1/rerank", {**request, "model": "other"}, 404, "'param': 'model'"),
        ("/v2/rerank", {**request, "documents": [{"title": "b"}]}, 400, "'param': 'documents'"),
        ("/", {"query": "a\ud800", "texts": ["b\ud800"], "return_text": True}, 200, "'text': 'b'"),
        ("/embed", {"inputs": "a"}, 424, "the served model has no vectors"),
        ("/v1/embeddings", {"input": "a", "model": "sentences"}, 400, "the served model has no vectors"),
    ):
        found, answer = post(server, path, content)
        assert found == status and message in str(answer)
    (kind,) = server.get("/info")[1]["model_type"].items()
    assert kind[0] == "reranker" and list(kind[1]["id2label"].values()) == list(labels)


@pytest.mark.endurance
def test_answers_that_clients_do_not_read_count_as_bytes_of_large_requests(server, export_dir, write_export):
    if "reranker" not in server.get("/info")[1]["model_type"]:
        server.wait_for_version(os.path.basename(write_export(export_dir, labels=("0", "1"))))
    body = json.dumps({"query": "a", "texts": ["a " * 500_000] * 60, "return_text": True}).encode()  # answers: 60 MB
    head = f"POST /rerank HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
    for connection in slow:
        connection.sendall(head.encode() + body)
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
    assert post(server, "/rerank", body)[0] == 429
    for connection in slow:
        connection.close()
    server.wait_until(lambda: post(server, "/rerank", body)[0] != 429, 20)


@pytest.mark.endurance
def test_classes_of_texts_and_pairs(hub_client, server, export_dir, write_export):
    server.wait_for_version(os.path.basename(write_export(export_dir, seed=5, max_windows=3)))
    pairs = [["the town", "a river"], ["bright word " * 40, "the"], ["a"]]
    columns = {"text_a": [pair[0] for pair in pairs], "text_b": ["a river", "the", ""]}
    outputs = server.outputs("text", columns)

    def expected_classes(row, name):
        best_first = sorted(zip(outputs[name][row], LABELS, strict=True), reverse=True)
        return [{"label": label, "score": pytest.approx(score, abs=TOLERANCE)} for score, label in best_first]

    found = [expected_classes(row, "probabilities") for row in range(3)]
    assert post(server, "/predict", {"inputs": pairs}) == (200, found)
    assert post(server, "/predict", {"inputs": pairs[0], "raw_scores": True}) == (200, expected_classes(0, "logits"))
    for path in ("/predict", "/"):
        assert post(server, path, {"inputs": "a"}) == (200, found[2])
    assert hub_client.text_classification("a").label == found[2][0]["label"]
    assert post(server, "/rerank", {"query": "a", "texts": ["b"]})[0] == 424
    assert server.get("/info")[1]["model_type"]["classifier"]["id2label"] == dict(zip("012", LABELS, strict=True))
