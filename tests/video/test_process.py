"""The decoding process: time limits, crashes, forks, threads, leaks; nothing is left behind."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from covr_lab.types import Refused
from covr_lab.video import All, DecordReader, Middle, PyAVReader, Uniform, VideoError, VideoReader, readers
from covr_lab.video.process import DecodeProcess
from covr_lab.video.worker import GRACE

Clips = Callable[..., Path]
Number = Callable[[npt.NDArray[np.uint8]], int]
pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts processes and files in /proc")


def children() -> list[int]:
    """Ids of all child processes, zombies included."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        if int(rest.split()[1]) == os.getpid():
            found.append(int(name.split()[0]))
    return found


def pid(reader: PyAVReader) -> int:
    assert reader._process is not None
    return reader._process._process.pid


def gone(process: int, seconds: float) -> bool:
    """Whether a process ends in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def own() -> Iterator[PyAVReader]:
    """A reader with a process of its own, which leaves no process behind."""
    before = children()
    reader = PyAVReader(timeout=30)
    yield reader
    reader.close()
    assert set(children()) <= set(before)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A file that hangs whoever opens it, inside native code."""
    os.mkfifo(tmp_path / "hangs.mp4")
    return tmp_path / "hangs.mp4"


@pytest.mark.parametrize("backend", [PyAVReader, DecordReader])
def test_a_clip_that_hangs_ends_in_time(backend: type[PyAVReader], pipe: Path, clips: Clips) -> None:
    before, reader = set(children()), backend(timeout=0.5)
    good = clips("short3.mp4", 3)
    reader.timeout = 30
    assert reader.probe(good).total == 3
    process, reader.timeout = pid(reader), 0.5
    start = time.monotonic()
    with pytest.raises(VideoError, match=r"hangs\.mp4 was not read in time \(limit 0\.5 s\): ") as error:
        reader.read(pipe, Middle())
    assert time.monotonic() - start < 2.5
    assert error.value.reason == "timeout"
    assert process not in children()
    reader.timeout = 30
    assert reader.read(good, All()).total == 3
    reader.close()
    assert set(children()) <= before


def test_a_crash_is_named_and_the_next_clip_is_read(own: PyAVReader, pipe: Path, clips: Clips) -> None:
    good = clips("short3.mp4", 3)
    own.probe(good)
    threading.Timer(0.3, os.kill, (pid(own), signal.SIGSEGV)).start()
    with pytest.raises(VideoError, match=r"hangs\.mp4 crashed the decoder \(SIGSEGV") as error:
        own.read(pipe, Middle())
    assert error.value.reason == "crashed"
    assert own.read(good, All()).total == 3
    os.kill(pid(own), signal.SIGKILL)  # between two clips: no clip is to blame
    assert gone(pid(own), 5)
    assert own.read(good, All()).total == 3


def test_an_interrupted_read_leaves_the_reader_usable(own: PyAVReader, pipe: Path, clips: Clips) -> None:
    own.probe(clips("short3.mp4", 3))
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        own.read(pipe, Middle())
    assert own.read(clips("short5.mp4", 5), All()).total == 5


def test_a_process_that_lost_its_reader_ends(pipe: Path, clips: Clips) -> None:
    """Also while it hangs: nobody is left who could kill it."""
    program = f"""if True:
        from pathlib import Path
        from covr_lab.video import Middle, PyAVReader
        reader = PyAVReader(timeout=1)
        reader.probe(Path({str(clips("short3.mp4", 3))!r}))
        print(reader._process._process.pid, flush=True)
        input()
        reader.read(Path({str(pipe)!r}), Middle())
    """
    for hangs in (False, True):
        main = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert main.stdin is not None
        assert main.stdout is not None
        process = int(main.stdout.readline())
        if hangs:
            main.stdin.write(b"\n")
            main.stdin.flush()
            time.sleep(0.3)
        main.kill()
        main.communicate()
        assert gone(process, GRACE + 5)


def test_forked_processes_have_their_own(own: PyAVReader, clips: Clips, number: Number) -> None:
    """Workers of a DataLoader, which are daemonic, made after the reader has read."""
    from torch.utils.data import DataLoader, Dataset

    path = clips("plain.mp4", 60)

    class Numbers(Dataset[int]):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> int:
            clip = own.read(path, Uniform(15))
            return number(clip.frames[index])

    expected = Uniform(15).indices(60)[:8].tolist()
    assert own.read(path, Uniform(15)).indices[:8].tolist() == expected
    process = pid(own)
    assert [int(value) for value in DataLoader(Numbers(), batch_size=None, num_workers=2)] == expected
    assert own.read(path, Middle()).total == 60
    assert pid(own) == process  # the copies have left it alone


def test_copies_and_threads(own: PyAVReader, clips: Clips, number: Number) -> None:
    path = clips("plain.mp4", 60)
    own.probe(path)
    for other in (copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
        assert (other.timeout, other.min_decodable, other._process) == (30, 0.9, None)
    with ThreadPoolExecutor(4) as pool:
        clips_read = list(pool.map(lambda _: own.read(path, Uniform(7)), range(12)))
    for clip in clips_read:
        assert [number(frame) for frame in clip.frames] == Uniform(7).indices(60).tolist()


@pytest.mark.parametrize("backend", ["pyav", "decord"])
def test_nothing_leaks(backend: str, clips: Clips, request: pytest.FixtureRequest) -> None:
    reader: PyAVReader = request.getfixturevalue(backend)
    path = clips("short5.mp4", 5)

    def state() -> tuple[int, int, int]:
        resident = int(Path(f"/proc/{pid(reader)}/statm").read_text().split()[1]) * 4096
        here, there = (len(list(Path(f"/proc/{owner}/fd").iterdir())) for owner in ("self", pid(reader)))
        return here, there, resident

    for _ in range(30):
        reader.read(path, Uniform(15))
    before = state()
    for _ in range(300):
        reader.read(path, Uniform(15))
    after = state()
    assert after[:2] == before[:2]
    assert after[2] < before[2] + 20e6


def test_processes_are_replaced(own: PyAVReader, clips: Clips, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "RECYCLE", 3)
    used = []
    for _ in range(7):
        own.read(clips("short3.mp4", 3), Middle())
        used.append(pid(own))
    assert [len(set(used[:count])) for count in (3, 6, 7)] == [1, 2, 3]


def test_the_decoding_process_is_light() -> None:
    program = (
        "import sys, av, covr_lab.video.worker; print(sorted({'torch', 'lightning', 'transformers'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"[]\n"
    program = "import sys, covr_lab.video; print(sorted({'torch', 'av', 'decord', 'PIL'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"[]\n"


def test_a_process_that_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "av.py").write_text("raise ImportError('no FFmpeg here')")
    from covr_lab.video import process

    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(process, "ROOT", Path(process.__file__).parents[2])
    with pytest.raises(RuntimeError, match="does not start: exit code 1, ImportError: no FFmpeg here"):
        DecodeProcess("pyav")


def test_readers_name_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "find_spec", lambda name: None)
    with pytest.raises(Refused, match=r"covr_lab\[decord\].*PyAVReader"):
        DecordReader()
    assert isinstance(PyAVReader(), VideoReader)


def test_fingerprints(decord: DecordReader, pyav: PyAVReader) -> None:
    assert decord.fingerprint != pyav.fingerprint
    assert decord.fingerprint == DecordReader(timeout=3).fingerprint
