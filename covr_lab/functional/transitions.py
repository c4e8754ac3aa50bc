"""Failure modes of interaction: what happens from one turn to the next (ReCoVR App. A.4)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from covr_lab.functional.metrics import Ranks

Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def transition_counts(ranks: Ranks, executed: Flags, shown: npt.NDArray[np.object_], fired: Flags) -> dict[str, Counts]:
    """Counts of each session over its active transitions ``t-1 -> t``: those whose turn ``t >= 1`` it executed.

    Args:
        ranks: int64 ``(S, T+1)`` target ranks, carried forward after the last executed turn.
        executed: bool ``(S, T+1)``, no turn after one that was not executed.
        shown: object ``(S, T+1)``, id of the top-1 video, ``None`` where nothing was shown.
        fired: bool ``(S, T+1)``, whether the rank-cap changed a list at this turn.

    Returns:
        int64 ``(S,)`` each: ``active``, and of these

        * ``improved``: the rank got smaller; ``drift``: it got larger.
        * ``repeat``: the same video is shown again.
        * ``rejected_shown_again``: the video was shown at any earlier turn, each of which the user did not accept.
          A ping-pong A, B, A counts here and not as ``repeat`` (our addition).
        * ``stuck``: not improved, with an active successor; ``recovered``: of these, the successor improved.
        * ``fired``: the rank-cap fired; ``unfired``: it did not; ``fired_improved`` and ``unfired_improved`` of these.

    Raises:
        ValueError: the arrays differ in shape, or a session has a gap in its executed turns.

    >>> shown, yes = np.array([["a", "b", "a"]], dtype=object), np.ones((1, 3), dtype=bool)
    >>> counts = transition_counts(np.array([[5, 7, 2]]), yes, shown, fired=yes)
    >>> counts["active"], counts["stuck"], counts["recovered"], counts["rejected_shown_again"]
    (array([2]), array([1]), array([1]), array([1]))
    """
    if ranks.ndim != 2 or not ranks.shape == executed.shape == shown.shape == fired.shape:
        shapes = ", ".join(str(array.shape) for array in (ranks, executed, shown, fired))
        raise ValueError(f"ranks, executed, shown and fired must share one shape (S, T+1), not {shapes}")
    if (executed[:, 1:] & ~executed[:, :-1]).any():
        session = int((executed[:, 1:] & ~executed[:, :-1]).any(axis=1).argmax())
        raise ValueError(f"session row {session}: a turn is executed after one that is not")
    active, capped = executed[:, 1:], fired[:, 1:]
    before, after = ranks[:, :-1], ranks[:, 1:]
    improved = after < before
    stuck = active[:, :-1] & ~improved[:, :-1] & active[:, 1:]
    seen = np.zeros_like(active)
    for turn in range(1, ranks.shape[1]):
        seen[:, turn - 1] = (shown[:, [turn]] == shown[:, :turn]).any(axis=1)
    there = active & (shown[:, 1:] != np.array(None, dtype=object))
    flags = {
        "active": active,
        "improved": active & improved,
        "drift": active & (after > before),
        "repeat": there & (shown[:, 1:] == shown[:, :-1]),
        "rejected_shown_again": there & seen,
        "stuck": stuck,
        "recovered": stuck & improved[:, 1:],
        "fired": active & capped,
        "unfired": active & ~capped,
        "fired_improved": active & capped & improved,
        "unfired_improved": active & ~capped & improved,
    }
    return {name: flag.sum(axis=1) for name, flag in flags.items()}


def transition_statistics(
    ranks: Ranks, executed: Flags, shown: npt.NDArray[np.object_], fired: Flags
) -> dict[str, float | int | None]:
    """Rates over the active transitions of all sessions; arguments and errors as :func:`transition_counts`.

    Returns:
        ``active``, their number, and in percent (``None`` without a denominator) of them ``improved``,
        ``not_improved`` (stagnation), ``drift``, ``repeat``, ``rejected_shown_again`` and ``rank_cap_fired``;
        ``recovery``: of the not improved ones with an active successor (``recovery_n``), those whose successor
        improved; ``improved_when_fired``: improved, of those in which the rank-cap fired.

    >>> shown = np.array([["a", "b", "a"]], dtype=object)
    >>> yes = np.ones((1, 3), dtype=bool)
    >>> rates = transition_statistics(np.array([[5, 7, 2]]), yes, shown, fired=yes)
    >>> rates["improved"], rates["drift"], rates["repeat"], rates["rejected_shown_again"], rates["recovery"]
    (50.0, 50.0, 0.0, 50.0, 100.0)
    """
    counts = {name: int(count.sum()) for name, count in transition_counts(ranks, executed, shown, fired).items()}
    active = counts["active"]
    return {
        "active": active,
        "improved": _percent(counts["improved"], active),
        "not_improved": _percent(active - counts["improved"], active),
        "drift": _percent(counts["drift"], active),
        "repeat": _percent(counts["repeat"], active),
        "rejected_shown_again": _percent(counts["rejected_shown_again"], active),
        "recovery": _percent(counts["recovered"], counts["stuck"]),
        "recovery_n": counts["stuck"],
        "rank_cap_fired": _percent(counts["fired"], active),
        "improved_when_fired": _percent(counts["fired_improved"], counts["fired"]),
    }


def _percent(event: int, among: int) -> float | None:
    """Share of ``among``, ``None`` when there is nothing to share."""
    return 100.0 * event / among if among else None
