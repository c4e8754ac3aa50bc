from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covr_lab.functional.slerp import PARALLEL, slerp


def at(degrees: float, length: float = 1.0) -> torch.Tensor:
    angle = math.radians(degrees)
    return length * torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)


@pytest.mark.parametrize(
    ("first", "second", "alpha", "expected"),
    [(0, 90, 0.8, 72), (0, 90, 0.5, 45), (20, 140, 0.25, 50), (140, 20, 0.25, 110), (-170, 170, 0.5, 180)],
)
def test_the_angle_is_divided_along_the_shorter_arc(first: float, second: float, alpha: float, expected: float) -> None:
    torch.testing.assert_close(slerp(at(first), at(second), alpha), at(expected), rtol=0, atol=1e-12)


def test_weights_act_on_vectors_of_any_length() -> None:
    """sin 30 / sin 60 of the one and of the other, worked out by hand: a rhombus of sides 2 and 3 times 1 / sqrt 3."""
    found = slerp(at(0, 2), at(60, 3), 0.5)
    torch.testing.assert_close(found, (at(0, 2) + at(60, 3)) / math.sqrt(3), rtol=0, atol=1e-12)


@pytest.mark.parametrize("second", [at(30), at(30, 5), at(210), at(210, 0.5), at(210 + 1e-6), at(30 - 1e-6)])
def test_on_one_line_the_first_is_kept(second: torch.Tensor) -> None:
    """Opposite ends have no shortest arc; the sine of the float pi is not zero, so rounding must not decide."""
    assert math.sin(math.pi) != 0
    assert torch.equal(slerp(at(30), second, 0.8), at(30))


def test_just_off_the_line_it_still_turns() -> None:
    step = math.degrees(10 * PARALLEL)
    torch.testing.assert_close(slerp(at(30), at(30 + step), 0.5), at(30 + step / 2), rtol=0, atol=1e-12)
    torch.testing.assert_close(slerp(at(0), at(180 - step), 0.5), at((180 - step) / 2), rtol=0, atol=1e-6)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 300), st.floats(0, 1))
def test_equals_the_formula_in_numpy(seed: int, width: int, alpha: float) -> None:
    a, b = np.random.default_rng(seed).standard_normal((2, width))
    angle = math.acos(np.clip(a @ b / math.sqrt(a @ a) / math.sqrt(b @ b), -1, 1))
    expected = (math.sin((1 - alpha) * angle) * a + math.sin(alpha * angle) * b) / math.sin(angle)
    found = slerp(torch.from_numpy(a), torch.from_numpy(b), alpha).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 / math.sin(angle))


def test_the_ends_of_the_arc_are_the_vectors() -> None:
    assert torch.equal(slerp(at(10), at(70), 0.0), at(10))
    torch.testing.assert_close(slerp(at(10), at(70), 1.0), at(70), rtol=0, atol=1e-15)
