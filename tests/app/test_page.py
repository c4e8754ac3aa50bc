"""The page in a real browser: what a person does, what it looks like, and what it never does."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.app.running import ROOT, Server, Visitor

webdriver = pytest.importorskip("selenium.webdriver", reason="pip install 'covr_lab[test]'")
pytest.importorskip("gradio", reason="pip install 'covr_lab[app]'")
PROGRAMS = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
if None in PROGRAMS:
    pytest.skip("no chromium with chromedriver (Debian: chromium, chromium-driver)", allow_module_level=True)

from selenium.common.exceptions import StaleElementReferenceException  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

FLAGS = ["headless=new", "no-sandbox", "disable-gpu", "no-first-run"]
QUIET = ["disable-background-networking", "disable-component-update", "disable-sync"]
PATIENCE = 60.0  # seconds, on a busy machine
EVIL = "<img src=x onerror=document.title='hacked'>"
# Whatever reaches beyond the window, and whatever of a text does not fit into its box.
MISFITS = """
const wide = document.documentElement.clientWidth, found = [];
for (const node of document.querySelectorAll(".covr *")) {
  const box = node.getBoundingClientRect();
  const text = node.matches("button, h1, h2, h3, p, small, .name, .rank, .move, input");
  if (!box.width || !box.height || node.closest(".scroll, .away")) continue;
  if (box.right > wide + 1 || box.left < -1) found.push(`outside: ${node.tagName}.${node.className}`);
  if (text && getComputedStyle(node).display !== "inline" && node.scrollWidth > node.clientWidth + 1)
    found.push(`cut: ${node.tagName}.${node.className} ${node.textContent.slice(0, 40)}`);
}
if (document.documentElement.scrollWidth > wide) found.push("the page scrolls sideways");
const cards = [...document.querySelectorAll(".card")].map(node => node.getBoundingClientRect());
const meet = (one, other) => one.left < other.right - 1 && other.left < one.right - 1
  && one.top < other.bottom - 1 && other.top < one.bottom - 1;
if (cards.some((one, at) => cards.slice(at + 1).some(other => meet(one, other)))) found.push("cards overlap");
return found;
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("page")
    clips = ["--data.families", "5", "--data.folder", str(folder / "clips")]
    study = ["--study", "4", "--each", "2", "--turns", "2", "--upload_mb", "1"]
    with Server(folder, str(ROOT / "recipes" / "recovr_demo.yaml"), *clips, *study) as server:
        yield server


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = PROGRAMS[0]
    for flag in [*FLAGS, *QUIET, f"user-data-dir={tmp_path_factory.mktemp('chromium')}"]:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(PROGRAMS[1]))
    yield driver
    driver.quit()


class Person:
    """Somebody at a browser that nobody used before."""

    def __init__(self, driver: Any, server: Server) -> None:
        self.driver, self.server = driver, server
        self.home = f"http://127.0.0.1:{server.port}/"
        driver.get("about:blank")
        driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": self.home, "storageTypes": "all"})
        self.look(1280, 800, "light")

    def look(self, width: int, height: int, scheme: str) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        wanted = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)

    def visit(self, place: str = "") -> None:
        self.driver.get("about:blank")
        self.driver.get(self.home + place)
        self.wait(".covr")

    def all(self, css: str) -> list[Any]:
        return list(self.driver.find_elements(By.CSS_SELECTOR, css))

    def wait(self, css: str, text: str = "") -> Any:
        """What is there, with ``text`` in it, once nothing is under way."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                found = [node for node in self.all(css) if text in node.get_attribute("textContent")]
                if found and not self.all("[aria-busy=true]"):
                    return found[0]
            except StaleElementReferenceException:
                pass
            time.sleep(0.05)
        raise AssertionError(f"no {css!r} with {text!r}: {self.driver.find_element(By.TAG_NAME, 'body').text[:1500]}")

    def press(self, css: str, text: str = "") -> None:
        self.driver.execute_script("arguments[0].click()", self.wait(css, text))

    def write(self, css: str, text: str) -> None:
        self.wait(css).send_keys(text)

    def say(self, text: str, turn: int) -> None:
        self.write("#covr-say", text + Keys.ENTER)
        self.wait(".past li:last-child b", f"Turn {turn}")

    def find(self, reference: int, text: str) -> None:
        self.visit()
        self.press(f".tile:nth-child({reference})")
        self.write("#covr-words", text + Keys.ENTER)
        self.wait(".card")

    def ids(self) -> list[str]:
        return [node.get_attribute("data-id") for node in self.all(".card")]

    def view(self) -> Any:
        """The search of the address, as the API tells this browser."""
        name = self.driver.execute_script("return location.hash").removeprefix("#search/")
        script = "const [name, done] = arguments; fetch(`/api/sessions/${name}`).then(said => said.json()).then(done)"
        return self.driver.execute_async_script(script, name)

    def file(self, path: Path) -> None:
        self.wait("#covr-words")
        self.driver.find_element(By.ID, "covr-file").send_keys(str(path))


@pytest.fixture
def person(chromium: Any, server: Server) -> Iterator[Person]:
    chromium.get_log("performance"), chromium.get_log("browser")
    someone = Person(chromium, server)
    yield someone
    events = [json.loads(entry["message"])["message"] for entry in chromium.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert asked
    elsewhere = [url for url in asked if not url.startswith((someone.home, "about:", "data:", "blob:"))]
    assert not elsewhere, elsewhere
    complaints = [entry for entry in chromium.get_log("browser") if entry["source"] != "network"]
    assert not complaints, complaints  # errors of scripts, and whatever the policy of the page forbids


def test_a_person_searches(person: Person, server: Server) -> None:
    person.find(3, "make it blue")
    first = person.ids()
    for turn, text in enumerate(["a red star instead", "at night", "moving to the left"], 1):
        person.say(text, turn)
    view = person.view()
    assert person.ids() == [result["id"] for result in view["results"]]
    assert [turn["feedback"] for turn in view["history"]] == [
        None,
        "a red star instead",
        "at night",
        "moving to the left",
    ]
    said = [(one["question"], one["feedback"]) for one in view["history"]]
    moved = person.all(".card .move")
    assert len(moved) == len(view["results"]), "every card tells how it moved"
    for result, badge in zip(view["results"], moved, strict=True):
        by = result["before"] - result["rank"]
        assert badge.text == ("new" if result["new"] else "=" if not by else f"{'▲' if by > 0 else '▼'} {abs(by)}")

    program = Visitor(server)  # the same, by a program, alone
    told = program.act("/api/sessions", reference=view["reference"]["id"], text="make it blue")
    assert [result["id"] for result in told["results"]] == first
    for _, text in said[1:]:
        told = program.act(f"/api/sessions/{told['id']}/feedback", text=text)
    assert [result["id"] for result in told["results"]] == person.ids()

    shown, here = person.ids(), person.view()["id"]
    person.driver.back()
    person.wait(".tile")
    person.driver.forward()
    person.wait(".card")
    assert (person.ids(), person.view()["id"]) == (shown, here)
    person.press(".card[data-rank='1'] [data-does=not]")
    person.wait(".past li:last-child", "Not this")
    assert person.ids()[0] != shown[0]
    assert view["results"][0]["name"] in person.wait(".notes").text, "the person is told what became of it"
    person.press("[data-does=undo]")
    person.wait(".past li:last-child b", "Turn 3")
    assert person.ids() == shown

    liked, before = person.ids()[1], person.view()["id"]
    person.press(".card[data-rank='2'] [data-does=more]")
    person.wait(".request button", "Search before")
    assert (person.view()["reference"]["id"], person.view()["parent"]) == (liked, before)
    wanted = person.ids()[1]
    person.press(".card[data-rank='2'] [data-does=found]")
    person.wait("h1", "Found")
    assert person.view()["found"] == wanted
    assert not person.all("#covr-say"), "nothing more can be said"
    person.driver.refresh()
    person.wait("h1", "Found")
    person.press("[data-does=undo]")
    person.wait("h1", "Results")


def test_a_person_is_told_what_takes_long(person: Person) -> None:
    person.find(2, "make it red")
    slow = {"offline": False, "latency": 2500, "downloadThroughput": -1, "uploadThroughput": -1}
    person.driver.execute_cdp_cmd("Network.emulateNetworkConditions", slow)
    try:
        person.write("#covr-say", "a red star" + Keys.ENTER)
        end = time.monotonic() + PATIENCE
        while not (told := person.driver.execute_script("return document.querySelector('.state').textContent")):
            assert time.monotonic() < end
        assert re.fullmatch(r"Searching … [1-9]\d* s", told)
        person.press("[data-does=not]")  # waits until the answer is there
        person.wait(".past li:last-child b", "Turn 2")
    finally:
        person.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {**slow, "latency": 0})
    assert not person.all(".state:not(:empty)")


def test_what_counts_can_be_edited(person: Person) -> None:
    person.find(2, "make it red")
    person.say("a red star", 1)
    kept = person.view()["constraints"]
    assert [chip.get_attribute("value") for chip in person.all(".chip.require input")] == kept["require"]
    person.press(".chip.require button")  # removed
    person.press("[aria-label='Add to Avoid']")
    person.write(".chip.avoid:nth-last-child(2) input", "circle")
    person.write(".chip.avoid:nth-last-child(2) input", Keys.ENTER)
    person.wait(".past li:last-child", "Changed what counts")
    assert person.view()["constraints"]["require"] == kept["require"][1:]
    assert person.view()["constraints"]["avoid"] == [*kept["avoid"], "circle"]
    person.press(".card[data-rank='1'] [data-does=why]")
    assert [node.text for node in person.all("dialog tbody th")] == ["start", "1", "2"]
    assert "false" not in person.wait("dialog").text


def test_clips_play_by_click_and_by_key(person: Person) -> None:
    person.find(1, "")
    for rank, start in ((1, lambda tile: tile.click()), (2, lambda tile: tile.send_keys(Keys.ENTER))):
        tile = person.wait(f".card[data-rank='{rank}'] .screen")
        start(tile)
        clip = tile.find_element(By.TAG_NAME, "video")
        at = "return arguments[0].currentTime"
        end = time.monotonic() + PATIENCE
        while not person.driver.execute_script(at, clip) and time.monotonic() < end:
            time.sleep(0.1)
        assert person.driver.execute_script(at, clip) > 0
        assert person.driver.execute_script("return arguments[0].muted && !arguments[0].paused", clip)
    tile.send_keys(Keys.ENTER)
    assert person.driver.execute_script("return arguments[0].paused", clip)


def test_everything_without_a_mouse(person: Person) -> None:
    person.visit()
    person.wait(".tile")

    def press(keys: str) -> Any:
        webdriver.ActionChains(person.driver).send_keys(keys).perform()
        return person.driver.switch_to.active_element

    def leave() -> None:
        person.driver.execute_script("document.activeElement.blur()")

    stops = [press(Keys.TAB) for _ in range(12)]
    tile = next(node for node in stops if "tile" in (node.get_attribute("class") or ""))
    while press(Keys.SHIFT + Keys.TAB + Keys.NULL) != tile:
        pass
    outline = person.driver.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus is seen"
    press(Keys.ENTER)
    person.wait(".slot.filled")
    press("make it green" + Keys.ENTER)
    person.wait(".card")
    leave()
    assert press("3").find_element(By.XPATH, "ancestor::article").get_attribute("data-rank") == "3"
    press("n")
    person.wait(".past li:last-child", "Not this")
    leave()
    press("u")
    person.wait(".past li:last-child b", "Start")
    leave()
    assert press("/").get_attribute("id") == "covr-say"
    press("u?")
    assert person.wait("#covr-say").get_attribute("value") == "u?", "letters that are typed are no shortcuts"


def test_uploads(person: Person, tmp_path: Path) -> None:
    clip = next((person.server.folder / "clips").rglob("*.mp4"))
    mine, text, large = tmp_path / "mine.mp4", tmp_path / "text.mp4", tmp_path / "large.mp4"
    Image.new("RGB", (64, 48), "red").save(tmp_path / "picture.png")
    shutil.copy(clip, mine)
    text.write_text("not a video at all\n" * 50)
    with large.open("wb") as file:
        file.truncate((1 << 20) + 1)
    person.visit()
    person.file(text)
    assert "neither a video nor a picture" in person.wait(".fault p").text
    person.file(large)
    person.wait(".fault p", "larger than 1 MB")
    person.file(tmp_path / "picture.png")
    tile = person.wait(".slot.filled .screen")
    tile.click()
    time.sleep(0.5)
    assert not tile.text, "a picture stands still, without a complaint"
    person.file(mine)
    person.wait(".slot.filled", "your upload")
    person.write("#covr-words", "make it red" + Keys.ENTER)
    person.wait(".card")
    assert person.view()["reference"]["id"].startswith("upload-")
    assert not person.all(".fault:not([hidden])"), "an old error is gone"


def test_a_study_over_a_reload_and_a_restart(person: Person, server: Server) -> None:
    person.visit("#study")
    person.write("#covr-id", "p 7")
    person.press("#covr-agree")
    person.write("#covr-id", Keys.ENTER)
    person.wait(".task h1", "Task 1 of 2")
    assert person.all(".wanted video")
    words = person.wait(".task").text
    assert "demo/" not in words, "names and captions would be words to copy"
    person.say("a red star", 1)
    person.wait(".soft", "1 turn of feedback left")
    person.driver.refresh()
    person.wait(".past li:last-child", "a red star")
    server.kill()
    person.write("#covr-say", "brighter" + Keys.ENTER)
    person.wait(".fault p", "does not answer")
    server.start()
    person.write("#covr-say", Keys.ENTER)  # what was written is still there
    person.wait(".past li:last-child", "brighter")
    assert not person.all("#covr-say"), "two turns were given"
    person.press(".task button.quiet", "Not found")
    person.wait(".task h1", "Task 2 of 2")
    person.press(".task button", "Pause")
    person.press(".consent button", "Go on")
    person.wait(".task h1", "Task 2 of 2")
    person.press(".task button.go", "Found it")
    person.wait("h1", "last task")
    person.press("button", "Another participant")
    assert person.wait("#covr-id").get_attribute("value") == ""

    recorded = [
        json.loads(line)
        for path in (server.folder / "data").rglob("*")
        if path.suffix == ".jsonl"
        for line in path.open()
    ]
    said = [entry for entry in recorded if entry["verb"] == "say" and entry["row"].get("participant") == "p 7"]
    assert [entry["row"]["feedback"] for entry in said] == ["a red star", "brighter"]
    assert all(entry["timing"]["shown"] <= entry["timing"]["first_key"] <= entry["timing"]["sent"] for entry in said)
    ends = [entry for entry in recorded if entry["verb"] == "ended"]
    assert [entry["outcome"] for entry in ends] == ["not found", "found"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
def test_nothing_is_cut_or_overlaps(person: Person, size: tuple[int, int], scheme: str) -> None:
    person.look(*size, scheme)
    person.find(1, "make it blue")
    person.say("a red star instead, " + "and " * 60, 1)
    person.press("[data-does=not]")
    person.wait(".notes")
    person.driver.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    assert person.driver.execute_script(MISFITS) == []
    person.press("[data-does=why]")
    assert person.driver.execute_script(MISFITS) == []
    colours = "const style = getComputedStyle(document.body); return [style.backgroundColor, style.color]"
    seen = person.driver.execute_script(colours)
    paper, ink = (sum(map(float, re.findall(r"[0-9.]+", one)[:3])) for one in seen)
    assert (paper > ink) == (scheme == "light")
    assert abs(paper - ink) > 450, "of 765"


def test_names_and_words_are_text(chromium: Any, tmp_path: Path, server: Server) -> None:
    clips = sorted((server.folder / "clips").rglob("*.mp4"))[:3]
    folder = tmp_path / "videos"
    folder.mkdir()
    for clip, name in zip(clips, (EVIL.replace("/", ""), "a & b", "größe 漢字"), strict=True):
        shutil.copy(clip, folder / f"{name}.mp4")
    (folder / "broken.mp4").write_bytes(b"no video")
    with Server(tmp_path / "own", str(ROOT / "recipes" / "my_videos.yaml"), "--data.folder", str(folder)) as own:
        person = Person(chromium, own)
        person.visit()
        person.write("#covr-filter", "onerror")
        person.wait(".more", "1 of 1 video")
        assert EVIL in person.wait(".tile .name").text
        person.press(".tile")
        person.write("#covr-words", EVIL + Keys.ENTER)
        person.wait(".card")
        person.say(EVIL, 1)
        assert EVIL in person.wait(".past li:last-child").text
        assert EVIL in person.wait(".request").text
        person.press(".card [data-does=why]")
        assert chromium.title == "covr_lab"
        assert not person.all("img[src=x]")
