"""Vectors and rankings as their clients get them, from a real server process with exports of tiny models."""

import concurrent.futures
import json
import os

import numpy as np
import pytest
import tensorflow as tf

from official_bert.serving.batching import QueueFullError
from tests.exports import TOLERANCE
from tests.serving.server_process import Server

pytest.importorskip("uvicorn")
openai = pytest.importorskip("openai")
huggingface_hub = pytest.importorskip("huggingface_hub")

# Texts of different lengths, unsorted; one exceeds the models' 32 tokens.
TEXTS = ["the town", "Zoë’s ﬁne café, 東京 tower", "bright word " * 40, "a", " ", "the river " * 10, "the town"]
LENGTH, WIDTH = 32, 16
PREFIX = "the "  # one token
QUERY = "the river "
TRUNCATED = {"extra_body": {"truncate": True}}


@pytest.fixture(scope="module")
def export_dir(tmp_path_factory, write_export):
    folder = tmp_path_factory.mktemp("serving") / "sentences"
    write_export(folder, "sentence_encoder", prefix=PREFIX, prompts={"query": QUERY})
    return str(folder)


@pytest.fixture(scope="module")
def server(export_dir, tmp_path_factory):
    log_file = tmp_path_factory.mktemp("log") / "log"
    server = Server(export_dir, log_file, batch_timeout_micros=20000, max_batch_size=200)
    yield server
    assert server.end() == 0, server.log
    assert "Traceback" not in server.log


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def hub_client(server):
    return huggingface_hub.InferenceClient(f"http://127.0.0.1:{server.port}")


def signature(export_dir, number, name, **texts):
    function = tf.saved_model.load(os.path.join(export_dir, str(number))).signatures[name]
    answer = function(**{name: tf.constant(values) for name, values in texts.items()})
    return {name: values.numpy() for name, values in answer.items()}


@pytest.fixture(scope="module")
def expected(export_dir):
    """Return the unit vectors of `TEXTS` and the number of tokens of each."""
    vectors = signature(export_dir, 1, "text", text=TEXTS)["vectors"]
    assert np.abs(vectors[0] - vectors[1:6]).max(axis=1).min() > 1e-2  # the texts matter
    return vectors, signature(export_dir, 1, "tokenize", text=TEXTS)["input_mask"].sum(axis=1)


def post(server, path, content):
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    status, answer = server.send("POST", path, body)
    return status, json.loads(answer)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)


def metrics(server):
    lines = server.send("GET", "/metrics")[1].decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


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


def test_the_client_of_openai_may_send_tokens(client, export_dir, expected):
    ids = signature(export_dir, 1, "tokenize", text=TEXTS[:2])
    tokens = [row[2 : number - 1].tolist() for row, number in zip(ids["input_ids"], expected[1], strict=False)]
    answer = client.embeddings.create(model="sentences", input=[*tokens, tokens[1] * 20], **TRUNCATED)
    assert_close([row.embedding for row in answer.data[:2]], expected[0][:2])
    assert answer.usage.prompt_tokens == expected[1][:2].sum() + LENGTH
    answer = client.embeddings.create(model="sentences", input=tokens[0])
    assert_close([answer.data[0].embedding], expected[0][:1])


@pytest.mark.parametrize(
    ("request_", "status", "name", "message"),
    [
        ({"input": "a", "encoding_format": "int8"}, 400, "encoding_format", "must be 'float' or 'base64', not 'int8'"),
        ({"input": "a", "dimensions": 0}, 400, "dimensions", "dimensions must be from 1 to 16, not '0'"),
        ({"input": "a", "model": "other"}, 404, "model", "the model 'other' does not exist; this server has sentences"),
        ({"input": []}, 400, "input", "the inputs must not be empty"),
        ({"input": ["a", ""]}, 400, "input", "input 1 is empty"),
        ({"input": [[5], [True]]}, 400, "input", "must be a string, a list of strings, or a list of token ids"),
        ({"input": [5, 1182]}, 400, None, "input_ids must be from 0 to 1181, but is from"),
        ({"input": [5, 2**70]}, 400, None, "must be ids from 0"),
        ({"input": ["a"] * 100_000}, 400, "input", "the request has 100000 inputs; at most 200 are allowed"),
        ({"input": TEXTS}, 400, "input", "maximum context length is 32 tokens; input 2 has more"),
        ({"input": [[5] * 30]}, 400, "input", "maximum context length is 32 tokens"),
        ({"input": "a", "extra_body": {"extra": 1}}, 400, "extra", "the request has an unknown key: 'extra'"),
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
    found = embed_client.feature_extraction(
        TEXTS[0], normalize=True, truncate=True, truncation_direction="right", dimensions=7
    )
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
        ("/embed", {"inputs": ["a"] * 100_000}, 413, "validation", "has 100000 inputs; at most 200 are allowed"),
        ("/embed", {"inputs": "a b " * 250_000, "truncate": False}, 413, "validation", "context length is 32 tokens"),
        ("/embed", {"inputs": "東京" * 500, "truncate": False}, 413, "validation", "context length is 32 tokens"),
        ("/embed", {"inputs": "a", "truncate": "no"}, 422, "validation", "truncate must be true or false"),
        ("/embed", {"inputs": "a", "truncation_direction": "middle"}, 422, "validation", "must be 'left' or 'right'"),
        ("/embed", {"inputs": "a", "prompt_name": "q"}, 422, "validation", "prompt_name 'q' is unknown; the model has"),
        ("/embed", {}, 422, "validation", 'the request must have "inputs"'),
        ("/embed", b"{", 422, "validation", "the request is not JSON"),
        ("/embed", b"a" * (1 << 26) + b"a", 413, "validation", "more than 67108864 bytes"),
        ("/similarity", {"inputs": {"source_sentence": "a"}}, 422, "validation", 'inputs must have "sentences"'),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}, 400, "empty", "must not be empty"),
        ("/similarity", {"inputs": "a"}, 422, "validation", "inputs must be an object"),
        ("/rerank", {"query": "a", "texts": ["b"]}, 424, "backend", "cannot rank texts"),
    ],
)  # fmt: skip
def test_clients_of_text_embeddings_inference_get_errors(server, path, content, status, kind, message):
    found, answer = post(server, path, content)
    assert (found, set(answer), answer["error_type"]) == (status, {"error", "error_type"}, kind), answer
    assert message in answer["error"]


def test_an_overload_has_a_status_that_clients_retry():
    from starlette.exceptions import HTTPException

    from official_bert.serving.embedding_endpoints import OPENAI_ERRORS, TEI_ERRORS

    for error in (QueueFullError("9 examples are waiting"), HTTPException(503, "many large requests")):
        answer = OPENAI_ERRORS.refuse(error)
        assert answer.status_code == 503 and json.loads(answer.body)["error"]["type"] == "server_error"
        answer = TEI_ERRORS.refuse(error)
        assert answer.status_code == 429 and json.loads(answer.body)["error_type"] == "overloaded"


def test_texts_of_the_maximum_length_are_not_too_long(server):
    for text in ("a " * (LENGTH - 3), "東" * (LENGTH - 3)):
        status, answer = post(server, "/embed", {"inputs": text, "truncate": False})
        assert status == 200 and np.shape(answer) == (1, WIDTH)
        assert post(server, "/embed", {"inputs": f"{text} a", "truncate": False})[0] == 413


@pytest.mark.slow
def test_prompts_and_the_ends_of_texts(hub_client, server, export_dir, expected):
    """The prompt is the export's prefix and a word; truncation at the left leaves the prefix and 29 words."""
    prompted = signature(export_dir, 1, "text", text=[f"river {text}" for text in TEXTS])["vectors"]
    assert_close(hub_client.feature_extraction(TEXTS, prompt_name="query"), prompted)
    assert np.abs(prompted - expected[0]).max() > 1e-2
    end = "the town " * 14 + "a"
    for options, vectors in (({}, expected[0]), ({"prompt_name": "query"}, prompted)):
        kept = signature(export_dir, 1, "text", text=[end])["vectors"]
        texts = ["a " * 100_000 + PREFIX + end, TEXTS[0]]
        found = hub_client.feature_extraction(texts, truncation_direction="left", truncate=True, **options)
        assert_close(found, [kept[0], vectors[0]])
    ids = signature(export_dir, 1, "tokenize", text=["river a"])["input_ids"][0, 1:4].tolist()  # the river a
    request = {"inputs": [ids[2:]], "prompt_name": "query"}
    assert_close(post(server, "/embed", request)[1], signature(export_dir, 1, "text", text=["river a"])["vectors"])
    for text in ("\ud800a", "a" * 300_000):
        assert post(server, "/embed", {"inputs": text, "truncation_direction": "left"})[0] == 200


def test_a_million_characters_are_truncated(server):
    whole, beginning = ("a b " * number for number in (250_000, 20))
    status, answer = post(server, "/embed", {"inputs": [whole, beginning]})
    assert status == 200
    assert_close(answer[0], answer[1])


def test_concurrent_requests_share_batches_and_an_invalid_one_fails_alone(client, server, expected):
    post(server, "/embed", {"inputs": "a"})  # the first request determines the model's input format
    before = metrics(server)
    numbers = [number % len(TEXTS) for number in range(40)]

    def ask(number):
        return client.embeddings.create(
            model="sentences", input=TEXTS[number] if number >= 0 else [5, 5000], **TRUNCATED
        )

    with concurrent.futures.ThreadPoolExecutor(len(numbers)) as executor:
        answers = [executor.submit(ask, number) for number in [-1, *numbers]]
    assert isinstance(answers[0].exception(), openai.BadRequestError)
    assert_close([answer.result().data[0].embedding for answer in answers[1:]], expected[0][numbers])
    after = metrics(server)
    num_examples, num_batches, num_positions = (
        after[name] - before[name] for name in ("batch_examples_sum", "batch_examples_count", "batch_positions_sum")
    )
    # Texts are tokenized one request at a time; all of these are vectors or tokens of a text.
    assert num_examples == 2 * len(numbers) + 1 and num_batches < 1.5 * len(numbers)
    assert num_positions > 0 and after["queue_examples"] == 0


def test_batches_of_a_large_request_are_filled_by_tokens(client, server, export_dir):
    """Send 200 texts of at most 32 tokens, more than the 32 examples per batch of other requests."""
    post(server, "/embed", {"inputs": "a"})
    texts = [f"{'the town ' * (number % 14)}a" for number in range(200)]
    before = metrics(server)
    answer = client.embeddings.create(model="sentences", input=texts)
    after = metrics(server)
    assert after["batch_examples_count"] - before["batch_examples_count"] <= 3  # tokens, and two batches
    assert_close([row.embedding for row in answer.data], signature(export_dir, 1, "text", text=texts)["vectors"])


def test_information_health_and_metrics(server):
    status, info = server.get("/info")
    assert (
        status == 200 and info["model_id"] == "sentences" and info["model_type"] == {"embedding": {"pooling": "mean"}}
    )
    assert (info["max_input_length"], info["max_client_batch_size"], info["dimensions"]) == (LENGTH, 200, WIDTH)
    assert server.send("GET", "/health") == (200, b"")
    assert server.get("/v1/models")[1]["models"] == ["sentences"]
    names = {"embed": 'method="POST",path="/embed"', "predict": 'method="POST",path="/v1/models/{model_name}:predict"'}
    before = metrics(server)
    server.outputs("text", {"text": ["a"]})
    post(server, "/embed", {"inputs": "a"})
    post(server, "/embed", {"inputs": ""})
    for method, path in (("GET", "/nowhere"), ("PUT", "/embed"), ("GET", "/v1/models/nowhere:1")):
        server.send(method, path)
    after = metrics(server)

    def grown(name):
        return after[name] - before.get(name, 0)

    assert grown(f'requests_total{{{names["embed"]},status="200"}}') == 1
    assert grown(f'requests_total{{{names["embed"]},status="400"}}') == 1
    assert grown(f'requests_total{{{names["predict"]},status="200"}}') == 1
    assert grown('requests_total{method="other",path="other",status="404"}') == 1
    assert grown('requests_total{method="other",path="/embed",status="405"}') == 1
    assert grown('requests_total{method="GET",path="/v1/models/{model_name}",status="404"}') == 1
    assert grown(f"request_seconds_count{{{names['embed']}}}") == 2
    assert not any("nowhere" in name for name in after)


PASSAGES = ["a river", "the town", "", "bright word " * 40, "the town a river"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "labels", "relevant"), [(2, ("entailment", "not_entailment"), 0), (3, ("0", "1"), 1), (4, (), None)]
)
def test_ranking_by_a_classifier_of_pairs(number, labels, relevant, server, export_dir, write_export):
    """Serve new versions, whose input formats are determined again; these must be the last tests of the server."""
    number = int(os.path.basename(write_export(export_dir, labels=labels, seed=number)))
    server.wait_for_version(str(number))
    pairs = {"text_a": ["the town"] * len(PASSAGES), "text_b": PASSAGES}
    outputs = signature(export_dir, number, "text", **pairs)
    if labels:
        scores = outputs["probabilities"][:, relevant]
        raw_scores = outputs["logits"][:, relevant] - outputs["logits"][:, 1 - relevant]
    else:
        raw_scores = outputs["scores"]
        scores = 1 / (1 + np.exp(-raw_scores))
    request = {"query": "the town", "texts": PASSAGES}
    for options, values in (({}, scores), ({"raw_scores": True, "return_text": True}, raw_scores)):
        status, answer = post(server, "/rerank", {**request, **options})
        assert status == 200, answer
        assert [row["index"] for row in answer] == np.argsort(-values, kind="stable").tolist()
        for row in answer:
            assert row["score"] == pytest.approx(values[row["index"]], abs=TOLERANCE)
            assert row.get("text") == (PASSAGES[row["index"]] if options else None)
    assert post(server, "/", request)[0] == 200
    status, answer = post(server, "/rerank", {**request, "truncate": False})
    assert status == 413 and "context length is 32 tokens; input 3 has" in answer["error"]
    assert post(server, "/rerank", {"query": "a", "texts": []})[0] == 400
    assert post(server, "/rerank", {"query": "a", "texts": "b"})[1]["error"] == "texts must be a list of strings"
    for path, content, wrong in (
        ("/embed", {"inputs": "a"}, 424),
        ("/v1/embeddings", {"input": "a", "model": "sentences"}, 400),
    ):
        status, answer = post(server, path, content)
        assert status == wrong and "the served model has no vectors" in str(answer)
    assert set(server.get("/info")[1]["model_type"]) == {"reranker"}
