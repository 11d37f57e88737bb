"""A hub on the loopback: the part of its protocol by which repositories are created, written, listed and read."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_loopback"
Files = dict[str, bytes]


@dataclass
class HubState:
    """What the hub stores, and what it was asked."""

    repos: dict[str, dict[str, Files]] = field(default_factory=dict)  # by name, then by branch
    private: set[str] = field(default_factory=set)
    objects: Files = field(default_factory=dict)  # large files by their SHA-256
    requests: list[str] = field(default_factory=list)
    served: Files = field(default_factory=dict)  # replaces the content of a path when it is downloaded
    endless: set[str] = field(default_factory=set)  # paths whose content never ends when it is downloaded
    sent: int = 0  # bytes of endless contents

    def files(self, repo: str, revision: str) -> Files | None:
        """The files of a branch, or of the commit with this id."""
        branches = self.repos.get(repo, {})
        found = (files for name, files in branches.items() if revision in (name, commit_of(files)))
        return next(found, None)

    @property
    def downloads(self) -> list[str]:
        """The paths of the files that were downloaded."""
        return [line.rpartition("/")[2] for line in self.requests if re.match(r"GET /\S+/resolve/", line)]


def commit_of(files: Files) -> str:
    """The id of a commit with these files."""
    return hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()


@contextmanager
def hub() -> Iterator[tuple[str, HubState]]:
    """A running hub: its address, and what it stores."""
    state = HubState()

    class Handler(_Handler):
        hub = state

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)  # seconds until it hears its end
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    protocol_version = "HTTP/1.1"
    hub: HubState

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing is printed."""

    def do_HEAD(self) -> None:
        self._answer(b"", self._resolve)

    def do_GET(self) -> None:
        self._answer(b"", self._resolve, self._info)

    def do_PUT(self) -> None:
        self._answer(self._body(), self._store)

    def do_POST(self) -> None:
        body = self._body()
        handlers = (self._create, self._branch, self._preupload, self._batch, self._commit, self._validate)
        self._answer(body, *handlers)

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        content = b""
        while count := int(self.rfile.readline(), 16):
            content += self.rfile.read(count)
            self.rfile.readline()
        self.rfile.readline()
        return content

    def _answer(self, body: bytes, *handlers: Any) -> None:
        self.hub.requests.append(f"{self.command} {self.path}")
        path = self.path.partition("?")[0]
        if self.command == "POST" and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send(401, {"error": "Invalid username or password."})
            return
        if not any(handler(path, body) for handler in handlers):
            self._send(404, {"error": "Repository not found"}, **{"X-Error-Code": "RepoNotFound"})

    def _send(self, status: int, content: Any = b"", **headers: str) -> bool:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
        return True

    def _send_endlessly(self) -> bool:
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        with suppress(OSError):  # the client has enough
            while self.hub.sent < 2**30:
                self.hub.sent += self.wfile.write(bytes(2**20))
        return True

    def _create(self, path: str, body: bytes) -> bool:
        if path != "/api/repos/create":
            return False
        asked = json.loads(body)
        name = f"{asked['organization']}/{asked['name']}"
        url = {"url": f"http://{self.headers['Host']}/{name}"}
        if name in self.hub.repos:
            return self._send(409, {**url, "error": "You already created this model repo"})
        self.hub.repos[name] = {"main": {".gitattributes": b"*.safetensors filter=lfs\n"}}
        if asked.get("private") or asked.get("visibility") == "private":
            self.hub.private.add(name)
        return self._send(200, url)

    def _branch(self, path: str, body: bytes) -> bool:
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+)/branch/([^/]+)", path)
        if match is None or match[1] not in self.hub.repos:
            return False
        branches = self.hub.repos[match[1]]
        branches.setdefault(match[2], dict(branches["main"]))
        return self._send(200, {})

    def _preupload(self, path: str, body: bytes) -> bool:
        if not re.fullmatch(r"/api/models/[^/]+/[^/]+/preupload/[^/]+", path):
            return False
        names = [file["path"] for file in json.loads(body)["files"]]
        modes = {name: "lfs" if name.endswith(".safetensors") else "regular" for name in names}
        files = [{"path": name, "uploadMode": mode, "shouldIgnore": False} for name, mode in modes.items()]
        return self._send(200, {"files": files})

    def _batch(self, path: str, body: bytes) -> bool:
        if not path.endswith(".git/info/lfs/objects/batch"):
            return False
        asked = json.loads(body)["objects"]
        href = f"http://{self.headers['Host']}/objects/"
        objects = [{**each, "actions": {"upload": {"href": href + each["oid"]}}} for each in asked]
        return self._send(200, {"transfer": "basic", "objects": objects})

    def _store(self, path: str, body: bytes) -> bool:
        oid = path.removeprefix("/objects/")
        if hashlib.sha256(body).hexdigest() != oid:
            return self._send(400)
        self.hub.objects[oid] = body
        return self._send(200)

    def _validate(self, path: str, body: bytes) -> bool:
        return path == "/api/validate-yaml" and self._send(200, {"errors": [], "warnings": []})

    def _commit(self, path: str, body: bytes) -> bool:
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/([^/]+)", path)
        if match is None or (files := self.hub.files(match[1], match[2])) is None:
            return False
        for line in body.splitlines():
            operation = json.loads(line)
            value = operation["value"]
            match operation["key"]:
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    files[value["path"]] = self.hub.objects[value["oid"]]
                case "deletedFile":
                    del files[value["path"]]
        commit = commit_of(files)
        url = f"http://{self.headers['Host']}/{match[1]}/commit/{commit}"
        return self._send(200, {"commitUrl": url, "commitOid": commit})

    def _info(self, path: str, body: bytes) -> bool:
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+?)(?:/revision/([^/]+))?", path)
        if match is None or match[1] not in self.hub.repos:
            return False
        files = self.hub.files(match[1], match[2] or "main")
        if files is None:
            return self._send(404, {"error": "Invalid rev id"}, **{"X-Error-Code": "RevisionNotFound"})
        siblings = [_sibling(name, content) for name, content in files.items()]
        return self._send(200, {"id": match[1], "sha": commit_of(files), "siblings": siblings})

    def _resolve(self, path: str, body: bytes) -> bool:
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if match is None or (files := self.hub.files(match[1], match[2])) is None or match[3] not in files:
            return False
        content = self.hub.served.get(match[3], files[match[3]])
        if match[3] in self.hub.endless and self.command == "GET":
            return self._send_endlessly()
        etag = hashlib.sha256(content).hexdigest()
        return self._send(200, content, **{"ETag": f'"{etag}"', "X-Repo-Commit": commit_of(files)})


def _sibling(name: str, content: bytes) -> dict[str, Any]:
    listed: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": hashlib.sha1(content).hexdigest()}
    if name.endswith(".safetensors"):
        digest = hashlib.sha256(content).hexdigest()
        listed["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 134}
    return listed
