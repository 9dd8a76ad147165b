"""A local Hugging Face hub with the few routes that its client uses."""

import contextlib
import hashlib
import http.server
import json
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.BaseHTTPRequestHandler):
    """Serves `server.models`, name to a dict of files; weights are served as large files with a SHA-256.

    Files named in `server.broken` are cut off halfway, those in `server.damaged` have a wrong last byte.
    """

    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def answer(self, status, content=b"", **headers):
        self.server.requests.append(f"{self.command} {self.path}")
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            half = self.path.rpartition("/")[2] in self.server.broken
            if self.path.rpartition("/")[2] in self.server.damaged:
                content = content[:-1] + bytes([content[-1] ^ 1])
            self.wfile.write(content[: len(content) // 2] if half else content)
            if half:
                self.close_connection = True

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = urllib.parse.unquote(urllib.parse.urlparse(self.path).path)
        is_api = path.startswith("/api/models/")
        parts = path.removeprefix("/api/models").strip("/").split("/")
        name, rest = "/".join(parts[:2]), parts[2:]
        model = self.server.models.get(name)
        if model is None or (name in self.server.private and self.headers.get("Authorization") != "Bearer right"):
            return self.answer(401, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
        if rest and rest[1] not in ("main", COMMIT):
            return self.answer(404, X_Error_Code="RevisionNotFound", X_Error_Message="Invalid rev id")
        if is_api and rest[0] == "tree":
            listed = [{"type": "file", "path": path, "size": len(model[path])} for path in model]
            listed = [{**each, "oid": etag_of(each["path"], model[each["path"]])} for each in listed]
            return self.answer(200, json.dumps(listed).encode(), Content_Type="application/json")
        if is_api:
            info = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": path} for path in model]}
            return self.answer(200, json.dumps(info).encode(), Content_Type="application/json")
        content = model.get("/".join(rest[2:]))
        if content is None:
            return self.answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)
        return self.answer(200, content, ETag=f'"{etag_of(path, content)}"', X_Repo_Commit=COMMIT)


def etag_of(path, content):
    hashed = hashlib.sha256 if path.endswith((".safetensors", ".bin")) else hashlib.sha1
    return hashed(content).hexdigest()


@contextlib.contextmanager
def serving(models):
    """Yield the server, whose `url` is for HF_ENDPOINT."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.models, server.private, server.requests = models, set(), []
    server.broken, server.damaged = set(), set()
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
