"""One service for all, on the world in words: what it refuses, and what it keeps for the next start."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from covr_lab.app import state
from covr_lab.app.client import Client
from covr_lab.app.docs import asked
from covr_lab.app.state import Service, StudyPlan, claimed, open_service
from covr_lab.app.uploads import Uploads
from covr_lab.chat import Desk
from covr_lab.results.folder import RunFolder
from covr_lab.types import Refused, SessionError
from tests.app.test_guard import ask
from tests.gallery.toy import write_clip

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@pytest.fixture
def desk(words: Desk, tmp_path: Path) -> Desk:
    """The shared system with a folder of its own."""
    folder = RunFolder(tmp_path / "run")
    folder.open(words.folder.record, {})
    return replace(words, folder=folder)


@pytest.fixture
def service(desk: Desk, tmp_path: Path) -> Iterator[Service]:
    service = Service(desk, Uploads(tmp_path / "uploads"), plan=StudyPlan(instances=4, each=3, turns=2))
    yield service
    service.close()


def test_a_study_keeps_its_numbers(service: Service, desk: Desk, tmp_path: Path) -> None:
    assert desk.folder.record["study"] == {"instances": 4, "each": 3, "turns": 2, "seed": 0}
    with pytest.raises(Refused, match=r"its study has .*'each': 3.* use the same numbers"):
        Service(desk, Uploads(tmp_path / "uploads"), plan=StudyPlan(instances=4, each=2, turns=2))
    me = Client(service, "me")
    task = me.consent("p1")
    assert (task["number"], task["of"], task["left"], task["done"]) == (1, 3, 2, False)
    name = task["search"]["id"]
    with pytest.raises(Refused, match="one of the study"):
        me.say(name, "make it red")
    for _ in range(2):
        task = me.task_say("p1", task["instance"], "make it red")
    with pytest.raises(SessionError, match="turns are over"):
        me.task_say("p1", task["instance"], "make it red")
    seen = {task["instance"]}
    while not (task := me.task_leave("p1", task["instance"]))["done"]:
        seen.add(task["instance"])
    assert len(seen) == 3


def test_a_system_in_words_takes_no_upload_and_keeps_no_file(service: Service, tmp_path: Path) -> None:
    me, clip = Client(service, "me"), write_clip(tmp_path / "x.mp4", 3).read_bytes()
    with me.incoming(len(clip)) as incoming:
        incoming.write(clip)
        with pytest.raises(Refused, match="without seeing videos"):
            me.keep(incoming)
    assert not list((tmp_path / "uploads").rglob("*.mp4"))
    with pytest.raises(SessionError, match="no such video"):
        me.media(service.ids[0])


def test_room_is_made_by_what_no_search_started_from(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest goes, and the system forgets it while nobody uses it."""
    uploads, forgotten = service.uploads, list[tuple[str, bool]]()
    uploads.each = 3
    clips = [write_clip(tmp_path / f"{number}.mp4", number).read_bytes() for number in range(4)]
    first, second, third = (uploads.take("me", [clip]) for clip in clips[:3])
    for age, upload in enumerate((first, second, third)):
        os.utime(upload.path, (age, age))
    service.searches.journal.append("a", {"row": {"reference": first.video}})
    service.admitted.add(second.video)
    monkeypatch.setattr(
        state, "dismiss", lambda system, gallery, video: forgotten.append((video, service.verbs.alone.locked()))
    )
    with Client(service, "me").incoming(None):
        assert set(uploads.held("me")) == {first.video, third.video}
    assert (forgotten, service.admitted) == ([(second.video, True)], set())
    uploads.take("me", [clips[1]])
    for name, upload in (("b", second), ("c", third)):
        service.searches.journal.append(name, {"row": {"reference": upload.video}})
    with pytest.raises(Refused, match="you have 3 uploads already"):
        Client(service, "me").incoming(None)


def test_the_uploads_of_a_browser_are_looked_at_as_one(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known of them stays, a new one is there at once, and of few browsers alone."""
    monkeypatch.setattr(state, "PLACES", 2)
    me, sent = Client(service, "me"), write_clip(tmp_path / "x.mp4", 3).read_bytes()
    media = me.media("upload-x")
    with pytest.raises(SessionError, match="no such video"):
        media.find("upload-x")
    mine = service.uploads.take("me", [sent])
    assert me.media(mine.video) is media
    assert media.find(mine.video) == mine.path.resolve()
    yours = Client(service, "you").media(mine.video)
    with pytest.raises(SessionError, match="no such video"):
        yours.find(mine.video)
    me.media(mine.video)
    Client(service, "them").media(mine.video)
    assert me.media(mine.video) is media
    assert Client(service, "you").media(mine.video) is not yours


def test_videos_are_found_by_name_or_caption(service: Service) -> None:
    me, gallery = Client(service, "me"), service.desk.gallery
    words = gallery.caption(service.ids[0]).split()[:3]
    found = me.videos(" ".join(words).upper())
    assert {card["id"] for card in found["videos"]} >= {service.ids[0]}
    assert all(all(word.casefold() in card["caption"].casefold() for word in words) for card in found["videos"])
    assert [card["id"] for card in me.videos(service.ids[5])["videos"]][:1] == [service.ids[5]]
    pages = [me.videos(page=page) for page in range(me.videos()["pages"])]
    assert [card["id"] for page in pages for card in page["videos"]] == list(service.ids)


def test_a_folder_serves_one_server(tmp_path: Path) -> None:
    with claimed(tmp_path / "data"), pytest.raises(Refused, match="another server uses it"):
        claimed(tmp_path / "data")
    claimed(tmp_path / "data").close()
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match="give --data_dir a folder"):
        claimed(tmp_path / "file")


def test_a_gallery_that_is_not_small_must_be_indexed_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "SMALL", 3)
    keys = ["--data.families", "1", "--data.folder", str(tmp_path / "clips"), "--trainer.accelerator", "cpu"]
    with pytest.raises(Refused, match=re.escape("run tools/index.py RECIPE")):
        open_service([RECIPES / "recovr_demo.yaml"], keys, folder=tmp_path / "data")
    keys = ["--data.folder", str(tmp_path / "clips"), "--trainer.accelerator", "cpu"]
    with pytest.raises(Refused, match="a study needs queries"):
        open_service([RECIPES / "my_videos.yaml"], keys, folder=tmp_path / "other", plan=StudyPlan())


def test_the_docs_name_what_may_be_left_away() -> None:
    body = {"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Like"}}}}}
    like = {"properties": {"video": {}, "text": {}}, "required": ["video"]}
    assert asked(body, {"Like": like}) == " {video, text?}"


def test_a_mistake_of_the_server_is_a_sentence(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi", reason="pip install 'covr_lab[app]'")
    from covr_lab.app.server import create_app, guarded

    def fail(*_: object) -> None:
        raise RuntimeError("secret detail")

    app = guarded(create_app(service), service)
    monkeypatch.setattr(Service, "stats", fail)
    with pytest.raises(RuntimeError):  # for the log of the server
        ask(app, "/api/stats")
    monkeypatch.setattr(Service, "stats", lambda _: (_ for _ in ()).throw(OSError(28, "No space left", "/a/path")))
    status, _, body = ask(app, "/api/stats")
    assert (status, body) == (507, b'{"error":"the server cannot write to its disk: nothing was recorded"}')
