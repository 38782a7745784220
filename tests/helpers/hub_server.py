"""A stand-in for the Hugging Face Hub on this machine, which the real client talks to."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0" * 40


@dataclass
class Hub:
    """What is there, and what was asked for, in the order in which it came.

    Attributes:
        repos: of each its files and whether it is private.
        asked: ("create", name, what was sent of the visibility), ("private", name), ("sent", name,
            what of its visibility held then, files, deleted files).
        default: the visibility of a new repository of which nothing is said.
    """

    repos: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[tuple] = field(default_factory=list)
    default: str = "public"


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def answer(self, content: Any, status: int = 200, **headers: str) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        @property
        def repo(self) -> str:
            return "/".join(self.path.partition("?")[0].split("/")[3:5])

        def create(self, sent: dict[str, Any]) -> None:
            name = f"{sent.get('organization') or 'me'}/{sent['name']}"
            visibility = sent.get("visibility", {True: "private", False: "public"}.get(
                sent.get("private")))  # fmt: skip
            hub.asked.append(("create", name, visibility))
            url = {"url": f"http://{self.headers['Host']}/{name}"}
            if name in hub.repos:
                return self.answer({"error": "it is there", **url}, 409)
            private = (visibility or hub.default) == "private"
            hub.repos[name] = {"private": private, "files": {}}
            return self.answer({**url, "name": name, "id": "1"})

        def do_POST(self) -> None:
            sent = self.body()
            if self.path.startswith("/api/repos/create"):
                return self.create(json.loads(sent))
            if self.path.startswith("/api/validate-yaml"):
                return self.answer({"errors": [], "warnings": []})
            if self.repo not in hub.repos:
                return self.answer({"error": "no such"}, 404, X_Error_Code="RepoNotFound")
            if "/preupload/" in self.path:
                names = [file["path"] for file in json.loads(sent)["files"]]
                told = {"uploadMode": "regular", "shouldIgnore": False, "oid": None}
                return self.answer({"files": [{"path": name, **told} for name in names]})
            changes = [json.loads(line) for line in sent.decode().splitlines()]
            by_kind: dict[str, list[str]] = {"file": [], "deletedFile": []}
            content = {}
            for change in changes:
                if change["key"] in by_kind:
                    by_kind[change["key"]].append(change["value"]["path"])
                    content[change["value"]["path"]] = change["value"].get("content")
            repo = hub.repos[self.repo]
            seen = "private" if repo["private"] else "public"
            hub.asked.append(("sent", self.repo, seen, *map(sorted, by_kind.values())))
            for name in by_kind["deletedFile"]:
                del repo["files"][name]
            repo["files"] |= {name: content[name] for name in by_kind["file"]}
            url = f"http://{self.headers['Host']}/{self.repo}/commit/{COMMIT}"
            return self.answer({"success": True, "commitUrl": url, "commitOid": COMMIT})

        def do_PUT(self) -> None:
            sent = json.loads(self.body())
            private = sent.get("visibility", "") == "private" or bool(sent.get("private"))
            hub.repos[self.repo]["private"] = private
            hub.asked.append(("private" if private else "public", self.repo))
            self.answer({})

        def do_GET(self) -> None:
            if self.repo not in hub.repos:
                return self.answer({"error": "no such"}, 404, X_Error_Code="RepoNotFound")
            repo = hub.repos[self.repo]
            if "/tree/" in self.path:
                files = [{"type": "file", "path": name, "size": 1, "oid": COMMIT}
                         for name in repo["files"]]  # fmt: skip
                return self.answer(files)
            about = {"id": self.repo, "private": repo["private"], "sha": COMMIT, "tags": []}
            siblings = [{"rfilename": name} for name in repo["files"]]
            return self.answer({**about, "siblings": siblings, "downloads": 0, "likes": 0})

    return Handler


@contextlib.contextmanager
def hub_server(monkeypatch: Any) -> Iterator[Hub]:
    """A Hub without repositories, which this process's client talks to."""
    from huggingface_hub import constants

    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_tests")
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
