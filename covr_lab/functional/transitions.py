"""Failure modes of interaction: what happens from one turn to the next (ReCoVR App. A.4)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from covr_lab.functional.metrics import Ranks

Flags = npt.NDArray[np.bool_]


def transition_statistics(
    ranks: Ranks, executed: Flags, shown: npt.NDArray[np.object_], fired: Flags
) -> dict[str, float | int | None]:
    """Rates over the active transitions ``t-1 -> t``: those whose turn ``t >= 1`` the session executed.

    Args:
        ranks: int64 ``(S, T+1)`` target ranks, carried forward after the last executed turn.
        executed: bool ``(S, T+1)``, no turn after one that was not executed.
        shown: object ``(S, T+1)``, id of the top-1 video, ``None`` where nothing was shown.
        fired: bool ``(S, T+1)``, whether the rank-cap changed a list at this turn.

    Returns:
        ``active``, their number, and in percent (``None`` without a denominator) of them:

        * ``improved``: the rank got smaller; ``not_improved``: it did not; ``drift``: it got larger.
        * ``repeat``: the same video is shown again.
        * ``rejected_shown_again``: the video was shown at any earlier turn, each of which the user did not accept.
          A ping-pong A, B, A counts here and not as ``repeat`` (our addition).
        * ``recovery``: of the not improved ones with an active successor, those whose successor improved;
          ``recovery_n`` is that denominator.
        * ``rank_cap_fired``; ``improved_when_fired``: improved, of those in which the rank-cap fired.

    Raises:
        ValueError: the arrays differ in shape, or a session has a gap in its executed turns.

    >>> shown = np.array([["a", "b", "a"]], dtype=object)
    >>> yes = np.ones((1, 3), dtype=bool)
    >>> rates = transition_statistics(np.array([[5, 7, 2]]), yes, shown, fired=yes)
    >>> rates["improved"], rates["drift"], rates["repeat"], rates["rejected_shown_again"], rates["recovery"]
    (50.0, 50.0, 0.0, 50.0, 100.0)
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
    there = shown[:, 1:] != np.array(None, dtype=object)
    return {
        "active": int(active.sum()),
        "improved": _percent(improved, active),
        "not_improved": _percent(~improved, active),
        "drift": _percent(after > before, active),
        "repeat": _percent(there & (shown[:, 1:] == shown[:, :-1]), active),
        "rejected_shown_again": _percent(there & seen, active),
        "recovery": _percent(improved[:, 1:], stuck),
        "recovery_n": int(stuck.sum()),
        "rank_cap_fired": _percent(capped, active),
        "improved_when_fired": _percent(improved, active & capped),
    }


def _percent(event: Flags, among: Flags) -> float | None:
    """Share of ``among`` in which ``event`` holds, ``None`` when there is nothing to share."""
    total = int(among.sum())
    return 100.0 * int((event & among).sum()) / total if total else None
