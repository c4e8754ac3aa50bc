"""The Hub is a stand-in on this machine: the part of its API that huggingface_hub asks for a file and for a folder."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from huggingface_hub import constants

from covr_lab.data import WebVidCoVR
from covr_lab.hub import local_path
from covr_lab.types import Refused

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CSV = b"txt1,txt2,sim_txt,pth1,pth2,edit,scores\na cat,a dog,0.9,1/2,3/4,make it a dog,[]\n"
FILES = {"test.csv": CSV, "blip/config.json": b"{}", "blip/weights.bin": bytes(range(256)), "cut.bin": b"x" * 1000}


class Handler(BaseHTTPRequestHandler):
    """Owner ``o``, data set ``set`` and model ``net``, branch ``main``; ``cut.bin`` never arrives whole."""

    protocol_version = "HTTP/1.0"
    asked: list[str]

    def log_message(self, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        self.asked.append(f"{self.command} {self.path}")
        path = self.path.split("?")[0].removeprefix("/")
        api = path.startswith("api/")
        path = path.removeprefix("api/").removeprefix("datasets/").removeprefix("models/")
        owner, name, verb, revision, *rest = [*path.split("/"), "", "", ""]
        rest = rest[:-3]
        if (owner, name) not in {("o", "set"), ("o", "net")}:
            return self.missing("RepoNotFound")
        if revision not in ("main", COMMIT):
            return self.missing("RevisionNotFound")
        if api and verb == "revision":
            return self.send(json.dumps({"id": f"{owner}/{name}", "sha": COMMIT}).encode())
        if api:
            tree = [{"type": "file", "path": key, "size": len(FILES[key]), "oid": oid(FILES[key])} for key in FILES]
            return self.send(json.dumps(tree).encode())
        body = FILES.get("/".join(rest))
        return self.missing("EntryNotFound") if body is None else self.send(body, cut="cut.bin" in rest)

    def missing(self, code: str) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def send(self, body: bytes, cut: bool = False) -> None:
        self.send_response(200)
        self.send_header("ETag", f'"{oid(body)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[: len(body) // 2] if cut else body)


def oid(body: bytes) -> str:
    return hashlib.sha1(body).hexdigest()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The stand-in with an empty cache; what it was asked for."""
    Handler.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    serve_from(monkeypatch, endpoint)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between the Hub client's attempts
    yield Handler.asked
    server.shutdown()
    server.server_close()
    thread.join()


def serve_from(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """What HF_ENDPOINT sets when huggingface_hub is first imported."""
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}")


def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def test_local_names_are_taken_as_they_are(hub: list[str], tmp_path: Path) -> None:
    for spec in ("a/b.csv", tmp_path / "b.csv", "~/x", "hf/x", "https:/x"):
        assert local_path(spec) == Path(spec)
    assert hub == []


def test_file_is_fetched_once(hub: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = local_path("hf://datasets/o/set@main/test.csv")
    assert path.read_bytes() == CSV
    assert sum("GET" in line and "resolve" in line for line in hub) == 1
    assert local_path("hf://datasets/o/set@main/test.csv") == path
    assert sum("GET" in line and "resolve" in line for line in hub) == 1
    count = len(hub)
    assert local_path(f"hf://datasets/o/set@{COMMIT}/test.csv") == path
    assert len(hub) == count  # a commit that is cached needs no network
    offline(monkeypatch)
    assert local_path("hf://datasets/o/set@main/test.csv") == path


def test_folder_holds_its_own_files_only(hub: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = local_path("hf://o/net@main/blip/")
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "weights.bin"]
    assert (folder / "weights.bin").read_bytes() == FILES["blip/weights.bin"]
    assert not (folder.parent / "test.csv").exists()
    with pytest.raises(Refused, match=r"net@main/clip/: no such folder in the repository \(check"):
        local_path("hf://o/net@main/clip/")
    offline(monkeypatch)
    assert local_path("hf://o/net@main/blip/") == folder
    with pytest.raises(Refused, match="not in the local cache"):
        local_path("hf://o/net@main/")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("hf://o/gone@main/x.csv", "no such repository, or one that asks for a login (check"),
        ("hf://o/set@v9/test.csv", "no such revision of the repository (check"),
        ("hf://datasets/o/set@main/train.csv", "no such file in the repository (check"),
        ("hf://o/gone@main/x/", "no such repository"),
        ("hf://o/net@v9/blip/", "no such revision"),
        ("hf://o/net@main/cut.bin", "not fetched: RemoteProtocolError: "),
        ("hf://o/net/blip/weights.bin", "no revision (write hf://o/net@REVISION/blip/weights.bin)"),
        ("hf://datasets/o/set/test.csv", "no revision (write hf://datasets/o/set@REVISION/test.csv)"),
        ("hf://o/net@main", "names no file (add /PATH, or a slash"),
        ("hf://net@main/x", "not the name of a file on the Hub (write hf://OWNER/NAME@REVISION/PATH"),
        ("hf://o/net@/x", "not the name of a file on the Hub (write"),
        ("hf://o/net@main/../../x", "not a file of a model or data set (write"),
        ("hf://spaces/o/net@main/x", "not a file of a model or data set (write"),
    ],
)
def test_refused_in_one_line_that_names_the_mend(hub: list[str], spec: str, message: str) -> None:
    with pytest.raises(Refused, match=r"\A[^\n]*\)\Z") as error:
        local_path(spec)
    assert str(error.value).startswith(f"{spec}: {message}")


def test_half_a_file_is_never_served(hub: list[str], tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(Refused, match="try again"):
            local_path("hf://o/net@main/cut.bin")
    assert not [path for path in (tmp_path / "hub").rglob("*") if path.is_file() and path.stat().st_size == 500]


def test_offline_and_unreachable(hub: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        offline(patch)
        with pytest.raises(Refused, match=r"test.csv: not in the local cache, and HF_HUB_OFFLINE is set \(unset"):
            local_path("hf://datasets/o/set@main/test.csv")
    assert hub == []
    serve_from(monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(Refused, match=r"test.csv: http://127.0.0.1:9 does not answer \(check the network"):
        local_path("hf://datasets/o/set@main/test.csv")


def test_data_modules_take_names_on_the_hub(hub: list[str]) -> None:
    name = f"hf://datasets/o/set@{COMMIT}/test.csv"
    assert [row.target for row in WebVidCoVR(annotations=name).triplets] == ["3/4"]
    FILES["ids.txt"] = b"3/4\n5/6\n"
    data = WebVidCoVR(annotations=name, gallery_file=f"hf://datasets/o/set@{COMMIT}/ids.txt")
    assert data.gallery.ids == ("3/4", "5/6")


def test_environment_is_honoured(hub: list[str], tmp_path: Path) -> None:
    script = "from covr_lab.hub import local_path; print(local_path('hf://o/net@main/blip/config.json'))"
    environment = {**os.environ, "HF_ENDPOINT": constants.ENDPOINT, "HF_HUB_CACHE": str(tmp_path / "other")}
    found = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).read_bytes() == b"{}"
    assert Path(found.stdout).is_relative_to(tmp_path / "other")
