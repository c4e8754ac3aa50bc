"""Speed as ratios to peers on the same work, one thread: ``python tools/bench.py [--rounds 5] [--only NAME]``.

Both sides run in turns (A B A B ...) and each round gives one ratio; the table has the median and the range. Under a
bound ``>=`` the ratio is peer / ours (times faster), under ``<=`` it is ours / peer. Seconds are CPU seconds, for
start-up wall seconds. A peer that would take minutes does a part of the work, as its cell says, and is scaled up.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from subprocess import DEVNULL, run
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest import mock
from zlib import crc32

import numpy as np
import numpy.typing as npt
import torch
import yaml
from torch import Tensor, nn
from torch.nn.functional import normalize
from torchmetrics.retrieval import RetrievalRecall

from covr_lab.data import DemoWorld
from covr_lab.functional.bootstrap import bootstrap_means
from covr_lab.functional.bradley_terry import bradley_terry
from covr_lab.functional.caps import rank_cap
from covr_lab.functional.fusion import reciprocal_rank_fusion
from covr_lab.functional.pairwise import odd_even, win_matrix
from covr_lab.functional.ranks import target_rank
from covr_lab.gallery.build import index
from covr_lab.recipe import Machine, build_parser, load, resolve
from covr_lab.retrievers import BlipRetriever
from covr_lab.retrievers.base import Retriever, similarities
from covr_lab.retrievers.blip import Blip
from covr_lab.runner import SessionRunner
from covr_lab.video import DecordReader, PyAVReader, Uniform

S, K = 2556, 100  # sessions of WebVid-CoVR-Test, entries of a list
WEIGHTS = [age / 5 for age in range(1, 6) for _ in range(2)]  # lists of a session: five turns of two channels
# One thread, and no remarks of torch's profiler that the machine has no GPU.
SETTINGS = {**dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"), "KINETO_LOG_LEVEL": "99"}
PEERS = ("ranx", "faiss", "cv2", "decord", "choix")  # that may be missing
ROOT = Path(__file__).resolve().parents[1]
Array = npt.NDArray[Any]
Call = Callable[[], object]
Compare = Callable[..., "Row"]  # compare(), told the number of rounds


class Row(NamedTuple):
    """One line of the table; ``must`` is empty where nothing is promised."""

    work: str
    ours: str
    peer: str
    ratios: list[float]
    must: str = ""

    def __str__(self) -> str:
        """The line, with the verdict on the median ratio."""
        middle, (sign, _, bound) = statistics.median(self.ratios), self.must.partition(" ")
        holds = sign and (middle >= float(bound) if sign == ">=" else middle <= float(bound))
        ratio = f"{middle:.3g} ({min(self.ratios):.3g}..{max(self.ratios):.3g})"
        verdict = {True: "holds", False: "misses", "": ""}[holds]
        return f"| {self.work} | {self.ours} | {self.peer} | {ratio} | {self.must} | {verdict} |"


def compare(
    rounds: int,
    work: str,
    ours: Call,
    name: str,
    peer: Call,
    must: str = "",
    *,
    part: float = 1,
    sessions: int = 0,
    unit: str = "sessions",
    wall: bool = False,
) -> Row:
    """Time both calls in turns after an untimed one; ``peer`` does this ``part`` of the work."""
    clock = time.perf_counter if wall else time.process_time

    def once(call: Call, times: int = 1) -> float:
        start = clock()
        for _ in range(times):
            call()
        return (clock() - start) / times

    def cell(seconds: float) -> str:
        text = f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
        return f"{text} ({sessions / seconds:.0f} {unit}/s)" if sessions else text

    calls = [(call, 1 + int(0.05 / once(call))) for call in (ours, peer)]  # quick ones are repeated for 0.05 s
    times = [(once(*calls[0]), once(*calls[1]) / part) for _ in range(rounds)]
    ratios = [mine / theirs if must.startswith("<=") else theirs / mine for mine, theirs in times]
    mine, theirs = (cell(statistics.median(side)) for side in zip(*times, strict=True))
    return Row(work, mine, f"{name}{f', {part:.1%} of it' if part < 1 else ''}: {theirs}", ratios, must)


def memory(work: str, call: Callable[[], Sequence[Array]], limit: float) -> Row:
    """Peak of what ``call`` allocates beyond what it returns, against ``limit`` MB."""
    tracemalloc.start()
    kept = sum(result.nbytes for result in call())
    extra = (tracemalloc.get_traced_memory()[1] - kept) / 1e6
    tracemalloc.stop()
    return Row(f"{work}, extra memory", f"{extra:.3g} MB", f"allowed: {limit:g} MB", [extra / limit], "<= 1")


def allocated(work: str, call: Call, limit: float) -> Row:
    """Peak of the tensors that ``call`` makes, against ``limit`` MB."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    sizes = accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns()))
    peak = max(sizes) / 1e6
    return Row(f"{work}, memory", f"{peak:.3g} MB", f"allowed: {limit:g} MB", [peak / limit], "<= 1")


def random_lists(count: int, gallery: int) -> Array:
    """Lists of distinct random gallery rows, int32 ``(count, K)``."""
    rng = np.random.default_rng(0)
    rising = np.sort(rng.integers(0, gallery - K + 1, (count, K)), axis=1) + np.arange(K)
    return rng.permuted(rising, axis=1).astype(np.int32)


def dict_fusion(sessions: list[list[list[int]]]) -> list[list[int]]:
    """Reciprocal-rank fusion as one writes it."""
    orders = []
    for lists in sessions:
        sums: dict[int, float] = {}
        for rows, weight in zip(lists, WEIGHTS, strict=True):
            for rank, row in enumerate(rows, 1):
                sums[row] = sums.get(row, 0.0) + weight / (60 + rank)
        orders.append(sorted(sums, key=sums.__getitem__, reverse=True))
    return orders


def fusion(bench: Compare) -> Iterator[Row]:
    """Fusion of ten lists a session; ranx has no weights, and its runs are made beforehand."""
    work, part = f"fusion, {S} sessions x {len(WEIGHTS)} lists of {K}", 256
    near, far = (random_lists(S * len(WEIGHTS), size).reshape(S, -1, K) for size in (10_000, 100_000))
    ours, plain = partial(reciprocal_rank_fusion, near, WEIGHTS, current=2), near.tolist()
    yield bench(work, ours, "dict loop", partial(dict_fusion, plain), ">= 5")
    larger = partial(reciprocal_rank_fusion, far, WEIGHTS, current=2)
    yield bench(f"{work}, N = 100k", larger, "N = 10k", ours, "<= 1.5")
    yield memory(work, ours, 16)
    ranx = import_module("ranx")
    warnings.filterwarnings("ignore", "unsafe cast")  # inside ranx
    columns = zip(*plain[:part], strict=True)
    runs = [ranx.Run({str(s): {str(v): -r for r, v in enumerate(x)} for s, x in enumerate(xs)}) for xs in columns]
    peer = partial(ranx.fuse, runs=runs, norm=None, method="rrf", params={"k": 60})
    yield bench(work, ours, "ranx.fuse", peer, ">= 30", part=part / S)


def list_cap(rows: list[int], video: int, position: int) -> list[int]:
    """Rank-cap of one list as one writes it."""
    capped = list(rows)
    try:
        place = capped.index(video)
    except ValueError:
        return capped
    if place < position - 1:
        capped.insert(min(position, len(capped)) - 1, capped.pop(place))
    return capped


def caps(bench: Compare) -> Iterator[Row]:
    """Rank-cap of one video from anywhere in the top ten to position 11."""
    lists, rng = random_lists(S, 10_000), np.random.default_rng(0)
    videos = np.take_along_axis(lists, rng.integers(0, 10, (S, 1)), 1)
    pairs = list(zip(lists.tolist(), videos[:, 0].tolist(), strict=True))
    ours = partial(rank_cap, lists, videos, np.full((S, 1), 11))
    work, peer = f"rank-cap, {S} lists of {K}", lambda: [list_cap(rows, video, 11) for rows, video in pairs]
    yield bench(work, ours, "python lists", peer, ">= 5")


def ranks(bench: Compare) -> Iterator[Row]:
    """Ranks of targets in full rows of scores."""
    count, size, part = 10_043, 10_000, 1000
    work, scores = f"target ranks, {count} x {size}", torch.rand(count, size)
    target = torch.arange(count) % size
    relevant = torch.arange(size) == target[:part, None]
    query = torch.arange(part)[:, None].expand(part, size)

    def unchunked() -> Tensor:
        return (scores > scores.gather(1, target[:, None])).sum(1) + 1

    def recall() -> None:
        metric = RetrievalRecall(top_k=10)
        metric.update(scores[:part], relevant, query)
        metric.compute()

    ours = partial(target_rank, scores, target)
    yield bench(work, ours, "torchmetrics RetrievalRecall", recall, ">= 50", part=part / count)
    yield bench(work, ours, "unchunked counting", unchunked)


def bootstrap(bench: Compare) -> Iterator[Row]:
    """Paired bootstrap of two systems at six turns."""
    resamples, rng = 10_000, np.random.default_rng(0)
    outcomes = 100 * rng.integers(0, 2, (S, 12)).astype(np.float64)
    first, second = outcomes[:, :6].copy(), outcomes[:, 6:].copy()
    work, ours = f"bootstrap, {resamples} x {S} x 6 turns x 2 systems", partial(bootstrap_means, outcomes, resamples)

    def loop() -> None:
        for _ in range(200):
            drawn = rng.integers(0, S, S)
            first[drawn].mean(axis=0) - second[drawn].mean(axis=0)

    def index_matrix() -> None:
        drawn = rng.integers(0, S, (200, S))
        for column in outcomes.T.copy():
            column[drawn].mean(axis=1)

    yield bench(work, ours, "numpy loop, an array a system", loop, ">= 10", part=200 / resamples)
    yield bench(work, ours, "index matrix", index_matrix, part=200 / resamples)
    yield memory(work, lambda: [ours()], 64)


def top(bench: Compare) -> Iterator[Row]:
    """Best hundred of an exact inner-product search."""
    rows = normalize(torch.randn(100_000, 384), dim=1)
    columns, queries = rows.T.contiguous(), {size: normalize(torch.randn(size, 384), dim=1) for size in (1, 64)}

    def ours(query: Tensor) -> object:
        return similarities(query, columns).topk(K)

    def row_major(query: Tensor) -> object:
        return (query @ rows.T).topk(K)

    work = "top-100 of N = 100k, D = 384, B = {}"
    for size, query in queries.items():
        must = "<= 0.6" if size == 1 else ""
        yield bench(work.format(size), partial(ours, query), "row-major torch", partial(row_major, query), must)
    faiss = import_module("faiss")
    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatIP(384)
    index.add(rows.numpy())
    for size, query in queries.items():
        peer, must = partial(index.search, query.numpy(), K), "<= 0.8" if size == 1 else "<= 0.5"
        yield bench(work.format(size), partial(ours, query), "faiss IndexFlatIP", peer, must)


class FreeEncoder(Retriever):
    """Fixed random vectors for videos and texts: the loop around it is all that costs time."""

    fingerprint = "free"

    def load(self) -> None:
        """Draw the vectors."""
        self.vectors = normalize(torch.randn(4096, 384, generator=torch.Generator().manual_seed(0)), dim=1)

    def encode_videos(self, videos: Sequence[str]) -> Tensor:
        """The vector of each name."""
        return self.vectors[[crc32(name.encode()) % len(self.vectors) for name in videos]]

    def encode_queries(self, texts: Sequence[str], anchors: Sequence[str | None]) -> Tensor:
        """The vector of each text."""
        return self.encode_videos(texts)


def strengths(bench: Compare) -> Iterator[Row]:
    """Bradley-Terry strengths from ten passes of comparisons, a fifth of them wrong, against the same optimum."""
    queries, size, passes, part, rng = 1000, 20, 10, 20, np.random.default_rng(0)
    wins = torch.zeros(queries, size, size, dtype=torch.float64)
    for query in range(queries):
        true, schedule, met = rng.permutation(size), odd_even(size, passes), list[tuple[int, int, float]]()
        with suppress(StopIteration):
            phase = next(schedule)
            while True:
                lost = [(true[a] > true[b]) ^ (rng.random() < 0.2) for a, b in phase.pairs]
                met += [(a, b, float(not second)) for (a, b), second in zip(phase.pairs, lost, strict=True)]
                phase = schedule.send(lost)
        wins[query] = win_matrix(size, met, "all")
    choix = import_module("choix")
    counts = [{(i, j): int(n) for (i, j), n in np.ndenumerate(some) if n} for some in wins[:part].numpy()]
    data = [[pair for pair, count in some.items() for _ in range(count)] for some in counts]

    def peer() -> list[Any]:
        return [choix.opt_pairwise(size, some, alpha=5e-4) for some in data]  # its penalty is not halved

    work, ours = f"Bradley-Terry, {queries} queries x {size} candidates", partial(bradley_terry, wins, ridge=1e-3)
    yield bench(work, ours, "choix.opt_pairwise", peer, ">= 100", sessions=queries, unit="queries", part=part / queries)
    tight = [choix.opt_pairwise(size, some, alpha=5e-4, tol=1e-12, method="Newton-CG") for some in data]
    apart = float(np.abs(np.stack(tight) - ours()[:part].numpy()).max())
    yield Row(f"{work}, distance to the optimum", f"{apart:.1e}", "allowed: 1e-06", [apart / 1e-6], "<= 1")
    yield allocated(work, ours, 64)


def loop(bench: Compare) -> Iterator[Row]:
    """Whole sessions of ReCoVR against the rule-based user."""
    parser, size = build_parser(), ["--data.videos", "4000", "--data.queries", str(S)]
    parts = parser.instantiate(resolve(parser, [ROOT / "recipes" / "recovr_words.yaml"], size))
    parts.system.retrievers["captions"] = FreeEncoder()
    runner, count = SessionRunner(parts.system, parts.simulator, parts.protocol), 128
    runner.setup("predict")
    runner.bind(parts.data)
    queries, targets = parts.data.queries()[:count], parts.data.targets()[:count]

    def play(batch: int) -> None:
        for start in range(0, count, batch):
            runner.play(queries[start : start + batch], targets[start : start + batch])

    work = f"loop, {count} sessions, N = {len(parts.data.gallery)}, free encoder, batch 64"
    yield bench(work, partial(play, 64), "batch 1", partial(play, 1), sessions=count)


def reasoning(bench: Compare) -> Iterator[Row]:
    """Whole sessions with a language model behind every module, all in lockstep against one after the other."""
    sys.path.append(str(ROOT))
    tiny = import_module("tests.tiny_vlm")
    parser, count = build_parser(), 64
    size = ["--data.videos", "200", "--data.queries", "100", "--data.limit", f"{count}", "--protocol.turns", "2"]
    with TemporaryDirectory() as folder:
        model = tiny.make_tiny_lm(Path(folder) / "lm", texts=tiny.packaged_prompts())
        for name in ("system_llm", "user_llm"):
            size += [f"--engines.{name}.engine.model", str(model), f"--engines.{name}.engine.max_new_tokens", "32"]
            size += [f"--engines.{name}.enabled", "false", f"--engines.{name}.engine.dtype", "float32"]
        words = load([ROOT / "recipes" / "recovr_words.yaml"])["data"]
        overlay = Path(folder) / "words.yaml"
        overlay.write_text(yaml.safe_dump({"data": words}))
        recipe = ROOT / "recipes" / "recovr_webvid_captions_llm.yaml"
        parts = parser.instantiate(resolve(parser, [recipe, overlay], size))
        parts.system.retrievers["captions"] = FreeEncoder()
        runner = SessionRunner(parts.system, parts.simulator, parts.protocol, parts.engines)
        runner.setup("predict")
        runner.bind(parts.data)
        queries, targets = parts.data.queries(), parts.data.targets()

        def play(some: int, batch: int) -> None:
            for start in range(0, some, batch):
                runner.play(queries[start : start + batch], targets[start : start + batch])

        work = f"loop, {count} sessions of two turns, random language model of 0.2 M parameters, batch {count}"
        peer = partial(play, 8, 1)
        yield bench(work, partial(play, count, count), "batch 1", peer, ">= 3", sessions=count, part=8 / count)


def write_clip(path: Path, frames: int = 300, width: int = 426, height: int = 320) -> Path:
    """A clip with B-frames: noise over drifting stripes, h264."""
    import av

    noise = np.random.default_rng(0).integers(-12, 13, (8, height, width, 3))
    x = np.arange(width)
    with av.open(str(path), "w") as file:
        stream: Any = file.add_stream("libx264", rate=30, options={"crf": "23", "preset": "medium"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for number in range(frames):
            stripes = 128 + 90 * np.sin((x + 3 * number) / 20)
            picture = np.clip(stripes[None, :, None] + noise[number % 8], 0, 255).astype(np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        file.mux(stream.encode())
    return path


def with_decord(path: Path, wanted: Sequence[int]) -> Array:
    """The frames, by decord alone."""
    decord = import_module("decord")
    reader = decord.VideoReader(str(path), num_threads=1)
    frames: Array = reader.get_batch(list(wanted)).asnumpy()
    return frames


def with_pyav(path: Path, wanted: Sequence[int]) -> Array:
    """The frames, by PyAV alone: decode up to the last one."""
    import av

    chosen, found = set(wanted), []
    with av.open(str(path)) as file:
        file.streams.video[0].thread_type = "SLICE"
        for number, frame in enumerate(file.decode(video=0)):
            if number in chosen:
                found.append(frame.to_ndarray(format="rgb24"))
            if number == wanted[-1]:
                break
    return np.stack(found)


def with_opencv(path: Path, wanted: Sequence[int]) -> Array:
    """The frames, by OpenCV alone: grab up to the last one."""
    cv2 = import_module("cv2")
    cv2.setNumThreads(1)
    file, chosen, found = cv2.VideoCapture(str(path)), set(wanted), []
    for number in range(wanted[-1] + 1):
        file.grab()
        if number in chosen:
            found.append(cv2.cvtColor(file.retrieve()[1], cv2.COLOR_BGR2RGB))
    file.release()
    return np.stack(found)


@contextmanager
def one_core() -> Iterator[None]:
    """This process and those it starts share one core, whatever number of threads a library takes (Linux only)."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def decode(bench: Compare) -> Iterator[Row]:
    """15 of 300 frames, against the libraries called directly; ours also checks the clip and can be killed."""
    with TemporaryDirectory() as folder, one_core():
        path, sampler = write_clip(Path(folder) / "clip.mp4"), Uniform(15)
        wanted = sampler.indices(300).tolist()
        for reader in (PyAVReader(), DecordReader()):
            for peer in (with_decord, with_pyav, with_opencv):
                work = f"15 of 300 frames, {type(reader).__name__}, one core"
                name = peer.__name__.removeprefix("with_")
                yield bench(
                    work,
                    partial(reader.read, path, sampler),
                    name,
                    partial(peer, path, wanted),
                    "<= 1.25",
                    sessions=15,
                    unit="frames",
                    wall=True,
                )


def plain_gallery(blip: Blip, paths: Sequence[Path]) -> list[Tensor]:
    """What a script would do: read, resize and encode one clip after another."""
    found = []
    for path in paths:
        frames = with_pyav(path, Uniform(4).indices(12).tolist())
        found.append(blip.images(blip.pixels(frames))[0])
    return found


def gallery(bench: Compare) -> Iterator[Row]:
    """Both artifacts of 96 demo clips with the packaged BLIP, against a plain loop that makes one of them."""
    with TemporaryDirectory() as folder:
        data, blip = (
            DemoWorld(families=16, folder=folder, reader=PyAVReader()),
            Blip(model="demo", storyboard=2, tile=32),
        )
        data.setup("predict")
        retriever, reports = BlipRetriever(blip=blip, frames=4), list[Any]()

        def ours() -> None:
            with TemporaryDirectory() as cache, mock.patch.dict(os.environ, COVR_CACHE=cache):
                system = nn.ModuleDict({"blip": retriever})
                reports.extend(index(system, data.gallery, data.videos, Machine("cpu"), workers=0) or [])

        retriever.load()
        paths = [data.media_path(video) for video in data.video_ids]
        count = len(data.gallery) + len(paths)  # clips that are read: gallery vectors, and tokens of all anchors
        peer = partial(plain_gallery, blip, paths)
        row = bench("", ours, "plain loop", peer, sessions=count, unit="clips", part=len(paths) / count, wall=True)
        shares = str(reports[-1]).partition("(")[2].partition(")")[0]
        yield row._replace(work=f"gallery, {count} clips, small BLIP, one process: {shares}")


def start_up(bench: Compare) -> Iterator[Row]:
    """The help text, against a script that imports nothing else."""
    bare = "import argparse; p = argparse.ArgumentParser(); p.add_argument('recipes', nargs='+'); p.parse_args()"
    ours, peer = (
        partial(run, [sys.executable, *words, "--help"], stdout=DEVNULL, check=True)
        for words in ([ROOT / "tools" / "eval.py"], ["-c", bare])
    )
    yield bench("start-up, eval.py --help", ours, "argparse script", peer, "<= 2", wall=True)


BENCHES = {
    "fusion": fusion,
    "rank-cap": caps,
    "ranks": ranks,
    "bootstrap": bootstrap,
    "top-k": top,
    "strengths": strengths,
    "loop": loop,
    "reasoning": reasoning,
    "decode": decode,
    "gallery": gallery,
    "start-up": start_up,
}


def main(argv: list[str]) -> None:
    """Print the table line by line, then what was left out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of each pair")
    parser.add_argument("--only", action="append", choices=BENCHES, help="one work; can be given again")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| work | ours | peer | ratio median (min..max) | must | verdict |\n|---|---|---|---|---|---|")
    skipped = []
    for name in options.only or BENCHES:
        try:
            for row in BENCHES[name](partial(compare, options.rounds)):
                print(row, flush=True)
        except ModuleNotFoundError as error:
            if error.name not in PEERS:
                raise
            skipped.append(f"{name}: the rows of {error.name} are left out, it is not installed")
    for note in skipped:
        print(note)


if __name__ == "__main__":
    if not SETTINGS.items() <= os.environ.items():  # read when numpy, numba and torch are imported
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **SETTINGS})
    main(sys.argv[1:])
