"""An API key, TLS, and pages of other servers, with the clients that people use."""

import contextlib
import http.client
import shutil
import ssl
import subprocess

import pytest

from official_bert.commands.serve import KEY_VARIABLE, ServeConfig
from official_bert.serving.app import REFUSAL, Access
from official_bert.support.errors import UserError
from tests.serving.server_process import Server
from tests.serving.tiny_exports import PROMPTS

KEY = "s3cret"


def test_the_key_is_a_flag_in_a_file_or_in_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv(KEY_VARIABLE, raising=False)

    def key(**flags):
        return ServeConfig(export_dir="serving/texts", **flags).key()

    assert key() is None
    monkeypatch.setenv(KEY_VARIABLE, "a")
    (tmp_path / "key").write_text("b\n")
    assert [key(), key(api_key_file=str(tmp_path / "key")), key(api_key="c")] == ["a", "b", "c"]
    for wrong in ("", "two words", "é", "line\nbreak"):
        with pytest.raises(UserError, match=r"api_key: an API key is one word of ASCII characters"):
            key(api_key=wrong)


def test_origins_are_those_that_browsers_send():
    for origin in ("https://example.org/", "example.org", "https://Example.org"):
        with pytest.raises(UserError, match=f"--cors_origin={origin}: no origin as browsers send it"):
            ServeConfig(export_dir="serving/texts", cors_origin=f"https://a.org, {origin}").access()


def test_the_whole_key_is_needed():
    for header in (b"Bearer s3cret", b"bearer  s3cret "):
        assert Access(KEY).allows(header)
    for header in (b"Bearer s3cre", b"Bearer s3crets", b"Basic s3cret", b"s3cret", b"Bearer \xff", b"", None):
        assert not Access(KEY).allows(header) and Access().allows(header)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Return a certificate of localhost and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the program openssl")
    folder = tmp_path_factory.mktemp("tls")
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", names, "-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    subprocess.run(command, check=True, capture_output=True)
    return str(folder / "cert.pem"), str(folder / "key.pem")


def test_files_of_tls_that_do_not_belong_together_are_named(certificate, tmp_path):
    (tmp_path / "other.pem").write_text("x")
    with pytest.raises(UserError, match="ssl_keyfile=.*other.pem: they must be a certificate and its key"):
        Access(None, certificate[0], str(tmp_path / "other.pem")).check_certificate()
    Access(None, *certificate).check_certificate()


class _TlsServer(Server):
    context: ssl.SSLContext

    def send(self, method, path, body=None, headers=None):
        connection = http.client.HTTPSConnection("localhost", self.port, timeout=60, context=self.context)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            self.headers = response.headers
            return response.status, response.read()


@pytest.mark.slow
def test_clients_need_the_key_and_use_tls(write_export, certificate, tmp_path):
    grpc, openai, _ = map(pytest.importorskip, ("grpc", "openai", "ai_edge_litert"))
    from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusRequest

    write_export(tmp_path / "texts", "sentence_encoder", prompts=PROMPTS, export_format="tflite")
    _TlsServer.context = ssl.create_default_context(cafile=certificate[0])
    flags = dict(zip(("ssl_certfile", "ssl_keyfile"), certificate, strict=True))
    origin = "https://example.org"
    server = _TlsServer(str(tmp_path / "texts"), tmp_path / "log", api_key=KEY, cors_origin=origin, **flags)
    try:
        assert "serving texts at https://localhost:" in server.log and KEY not in server.log
        for path in ("/v1/models/texts", "/metrics", "/nothing"):
            for headers in ({}, {"Authorization": "Bearer other"}):
                status, answer = server.send("GET", path, headers=headers)
                assert (status, REFUSAL in answer.decode()) == (401, True)
        given = {"Authorization": f"Bearer {KEY}", "Origin": origin}
        assert server.send("GET", "/v1/models/texts", headers=given)[0] == 200
        assert server.headers["access-control-allow-origin"] == origin
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-a"}
        assert server.send("OPTIONS", "/v1/embeddings", headers=asked)[0] == 200
        assert server.send("OPTIONS", "/v1/embeddings", headers={**asked, "Origin": "https://evil.org"})[0] == 400

        def embedding(key):
            with_certificate = openai.DefaultHttpxClient(verify=_TlsServer.context)
            base = f"https://localhost:{server.port}/v1"
            client = openai.OpenAI(api_key=key, base_url=base, http_client=with_certificate, max_retries=0)
            return client.embeddings.create(model="texts", input="the town").data[0].embedding

        assert len(embedding(KEY)) == 16
        with pytest.raises(openai.AuthenticationError, match="the API key is missing or wrong"):
            embedding("other")

        with open(certificate[0], "rb") as roots:
            credentials = grpc.ssl_channel_credentials(roots.read())
        request = GetModelStatusRequest(model_spec={"name": "texts"}).SerializeToString()
        with grpc.secure_channel(f"localhost:{server.grpc_port}", credentials) as channel:
            ask = channel.unary_unary("/tensorflow.serving.ModelService/GetModelStatus")
            for metadata in (None, [("authorization", "Bearer other")]):
                with pytest.raises(grpc.RpcError) as raised:
                    ask(request, metadata=metadata, timeout=60)
                assert raised.value.code() == grpc.StatusCode.UNAUTHENTICATED
            assert ask(request, metadata=[("authorization", f"Bearer {KEY}")], timeout=60)
    finally:
        assert server.end() == 0
