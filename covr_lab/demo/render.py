"""Scenes to pixels: anti-aliased shapes over a pattern, with numpy; clips are written as h264."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from covr_lab.demo.world import Scene

Image = NDArray[np.uint8]
Array = NDArray[np.float32]

SIDE: Final = 128  # pixels
FRAMES: Final = 12
RATE: Final = 6  # frames a second
RENDERER: Final = 1  # another number: other pixels
PAINT: Final[dict[str, tuple[int, int, int]]] = {
    "red": (222, 28, 36),
    "orange": (255, 138, 10),
    "yellow": (252, 228, 50),
    "green": (36, 160, 50),
    "turquoise": (50, 215, 215),
    "blue": (40, 70, 220),
    "purple": (142, 45, 180),
    "pink": (255, 135, 195),
}
_STAR: Final = [(math.pi * k / 5, 1.0 if k % 2 == 0 else 0.42) for k in range(10)]
_POLYGONS: Final = {
    "square": [(-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8)],
    "triangle": [(0.0, -1.0), (0.95, 0.75), (-0.95, 0.75)],
    "star": [(r * math.sin(a), -r * math.cos(a)) for a, r in _STAR],
    "cross": [
        (-0.33, -1),
        (0.33, -1),
        (0.33, -0.33),
        (1, -0.33),
        (1, 0.33),
        (0.33, 0.33),
        (0.33, 1),
        (-0.33, 1),
        (-0.33, 0.33),
        (-1, 0.33),
        (-1, -0.33),
        (-0.33, -0.33),
    ],
    "heart": [(0.0, -0.45)]
    + [(0.5 + 0.52 * math.cos(a), -0.42 + 0.5 * math.sin(a)) for a in np.linspace(math.pi, 2.15 * math.pi, 12)]
    + [(0.0, 0.98)]
    + [(-0.5 - 0.52 * math.cos(a), -0.42 + 0.5 * math.sin(a)) for a in np.linspace(2.15 * math.pi, math.pi, 12)],
}


def _polygon(x: Array, y: Array, corners: list[tuple[float, float]]) -> Array:
    """Signed distance to a polygon, negative inside."""
    nearest = np.full(x.shape, np.inf, np.float32)
    inside = np.zeros(x.shape, bool)
    for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True):
        ex, ey, px, py = bx - ax, by - ay, x - ax, y - ay
        share = np.clip((px * ex + py * ey) / (ex * ex + ey * ey + 1e-9), 0, 1)
        nearest = np.minimum(nearest, (px - share * ex) ** 2 + (py - share * ey) ** 2)
        if ay != by:
            inside ^= ((ay > y) != (by > y)) & (x < ex * (y - ay) / (by - ay) + ax)
    distance = np.sqrt(nearest)
    return np.where(inside, -distance, distance).astype(np.float32)


def _distance(shape: str, x: Array, y: Array) -> Array:
    """Signed distance to a shape of radius 1 around the origin."""
    far = np.hypot(x, y).astype(np.float32)
    if shape == "circle":
        return far - np.float32(0.92)
    if shape == "ring":
        return np.asarray(np.abs(far - 0.74) - 0.24, np.float32)
    if shape == "moon":
        return np.asarray(np.maximum(far - 0.98, 0.8 - np.hypot(x - 0.5, y)), np.float32)
    return _polygon(x, y, _POLYGONS[shape])


@lru_cache(maxsize=20000)
def _stamp(shape: str, radius: float, dx: float, dy: float) -> tuple[Array, Array]:
    """Cover of the whole shape and of its inside within a dark rim, in [0, 1]; sizes and shifts in pixels."""
    half = math.ceil(radius * 1.25) + 2
    axis = np.arange(-half, half + 1, dtype=np.float32)
    x, y = np.meshgrid((axis - dx) / radius, (axis - dy) / radius)
    distance = _distance(shape, x, y) * radius
    rim = radius * 0.09
    return np.clip(0.5 - distance, 0, 1)[..., None], np.clip(0.5 - distance - rim, 0, 1)[..., None]


@lru_cache(maxsize=4096)
def _background(name: str, side: int, px: int, py: int) -> Array:
    """Pattern as floats 0-255 (side, side, 3), shifted by (px, py) 32nds of the side."""
    y, x = np.mgrid[0:side, 0:side].astype(np.float32) / side
    x, y = x + px / 32, y + py / 32
    soft = side / 64

    def mix(wave: Array, low: tuple[int, int, int], high: tuple[int, int, int]) -> Array:
        share = np.clip(wave * 6 * soft + 0.5, 0, 1)[..., None]
        return np.asarray(np.array(low, np.float32) * (1 - share) + np.array(high, np.float32) * share)

    if name == "plain":
        return mix(np.ones_like(x), (0, 0, 0), (214, 212, 206))
    if name == "dark":
        return mix(np.ones_like(x), (0, 0, 0), (52, 50, 54))
    if name == "striped":
        return mix(np.sin(2 * np.pi * x * 6), (122, 120, 126), (206, 204, 208))
    if name == "checkered":
        return mix(np.sin(2 * np.pi * x * 3) * np.sin(2 * np.pi * y * 3), (96, 96, 96), (196, 196, 196))
    if name == "dotted":
        return mix(np.cos(2 * np.pi * x * 5) + np.cos(2 * np.pi * y * 5) - 0.9, (205, 200, 190), (110, 105, 100))
    if name == "brick":
        row = np.floor(y * 8)
        along = np.abs(((x * 4 + row * 0.5) % 1) - 0.5) - 0.43
        across = np.abs(((y * 8) % 1) - 0.5) - 0.36
        return mix(np.maximum(along * 3, across), (142, 108, 98), (202, 196, 190))
    if name == "wavy":
        return mix(np.sin(2 * np.pi * (y * 5 + 0.22 * np.sin(2 * np.pi * x * 2))), (92, 112, 132), (160, 178, 194))
    grid = 9  # starry: one bright point in each cell, at a place that depends on the cell
    cx, cy = np.floor(x * grid), np.floor(y * grid)
    jx, jy = 0.5 + 0.3 * np.sin(cx * 12.9 + cy * 78.2), 0.5 + 0.3 * np.sin(cx * 39.3 + cy * 11.1)
    near = np.hypot(x * grid - cx - jx, y * grid - cy - jy)
    return mix(0.2 - near, (26, 28, 58), (240, 240, 225))


def frame(scene: Scene, time: float, side: int = SIDE) -> Image:
    """The picture of ``scene`` at ``time`` in [0, 1]: RGB, uint8 (side, side, 3)."""
    canvas = _background(scene.background, side, int(scene.phase[0] * 32), int(scene.phase[1] * 32)).copy()
    for thing in scene.things:
        cx, cy, radius = (value * side for value in thing.at(time))
        px, py = math.floor(cx), math.floor(cy)
        quarter = [round((value - whole) * 4) / 4 for value, whole in ((cx, px), (cy, py))]
        whole, inner = _stamp(thing.shape, round(radius * 4) / 4, quarter[0], quarter[1])
        half = whole.shape[0] // 2
        top, left = max(py - half, 0), max(px - half, 0)
        bottom, right = min(py + half + 1, side), min(px + half + 1, side)
        if bottom <= top or right <= left:
            continue
        cut = np.s_[top - py + half : bottom - py + half, left - px + half : right - px + half]
        under = canvas[top:bottom, left:right]
        under += whole[cut] * (np.float32(24) - under)
        under += inner[cut] * (np.array(PAINT[thing.colour], np.float32) - under)
    dim = {"steady": 1.0, "fading": 1 - 0.62 * time, "brightening": 0.38 + 0.62 * time}[scene.light]
    return (canvas * np.float32(dim) + np.float32(0.5)).astype(np.uint8)


def render(scene: Scene, frames: int = FRAMES, side: int = SIDE) -> Image:
    """All pictures of a clip: RGB, uint8 (frames, side, side, 3); frame k shows the time (k + 1/2) / frames."""
    return np.stack([frame(scene, (k + 0.5) / frames, side) for k in range(frames)])


def write_clip(scene: Scene, path: Path) -> None:
    """Write ``scene`` as an h264 mp4; the same bytes each time for one build of PyAV.

    Raises:
        OSError: ``path`` cannot be written.
    """
    import av

    with av.open(str(path), "w", options={"movflags": "+faststart"}) as container:
        options = {"crf": "23", "preset": "veryfast", "threads": "1"}
        stream: Any = container.add_stream("libx264", rate=RATE, options=options)
        stream.width = stream.height = SIDE
        stream.pix_fmt = "yuv420p"
        stream.thread_count = 1
        for picture in render(scene):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
