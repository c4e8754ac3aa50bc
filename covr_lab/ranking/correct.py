"""Correct and fuse: provisional fusion, the policies' plan, the plan applied, the final order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from covr_lab.ranking.fusion import Fusion
from covr_lab.ranking.memory import Lists, apply_caps, cap_slots, collate_memory, complete, fires
from covr_lab.ranking.policies import RankPolicy, Tops
from covr_lab.types import Cap, RankedList, Satisfaction, Session


@dataclass(frozen=True, slots=True)
class Found:
    """Full rankings of the channels that ran for one session, in channel order; rows that the user rejected by name."""

    lists: dict[str, RankedList]
    rejected: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Corrected:
    """What a turn shows and remembers: the fused order, this turn's lists after the caps, the plan."""

    result: RankedList
    lists: Mapping[str, RankedList]
    caps: tuple[Cap, ...]


def correct(
    sessions: Sequence[Session],
    signals: Sequence[Satisfaction],
    found: Sequence[Found],
    *,
    channels: Sequence[str],
    fusion: Fusion,
    policies: Sequence[RankPolicy],
    opening: bool,
) -> list[Corrected]:
    """Fuse this turn's lists with the remembered ones under the rank policies (ReCoVR, section 3.2).

    A fusion that reads similarities takes the caps of a plan on its order instead, of this turn alone; the lists stay
    as they are (dossier, section 1.9).

    Args:
        sessions: dialogues before this turn.
        signals: satisfaction with the video on display.
        found: what the channels brought.
        channels: channel names; the first one that ran orders the rows that no list holds, and when none ran the
            ranking on display does.
        fusion: the fusion rule.
        policies: rank policies; the first to name a video decides.
        opening: whether turn 0 is remembered.
    """
    memory = collate_memory(sessions, channels, window=fusion.window, pool=fusion.pool, opening=opening)
    for row, turn in enumerate(found):
        for column, name in enumerate(channels):
            if name in turn.lists:
                memory.write((row, -1, column), turn.lists[name])
    tails = []
    for session, turn in zip(sessions, found, strict=True):
        shown = session.turns[-1].result.rows  # every row that is not masked; a channel may lack its anchor
        first = next((turn.lists[name].rows for name in channels if name in turn.lists), shown)
        tails.append(complete(first, shown))
    fused, capped = fusion(memory), memory
    plans: list[tuple[Cap, ...]] = [()] * len(sessions)
    for _ in range(2):  # with older rejections demoted, the video on display may come first again: look twice
        longer = []
        for row, session in enumerate(sessions):
            order = complete(fused[row], tails[row])
            top = _first(displayed(order, plans[row]))
            firsts = tuple(_first(ranking.rows) for ranking in found[row].lists.values())
            tops = Tops(top, firsts, found[row].rejected)
            caps = (cap for policy in policies for cap in policy.plan(session, signals[row], tops))
            if fusion.caps == "order":
                caps = (replace(cap, scope="order", guard=False) for cap in caps)
            lists = {"window": memory.rows[row], "current": memory.rows[row, -1:], "order": order[None]}
            longer.append(_joined(plans[row], caps, lists))
        if longer == plans:
            break
        plans = longer
        capped = cap_slots(memory, slice(None), [[cap for cap in plan if cap.scope == "window"] for plan in plans])
        capped = cap_slots(capped, slice(-1, None), [[cap for cap in plan if cap.scope != "order"] for plan in plans])
        fused = fusion(capped)
    return [
        Corrected(
            RankedList(displayed(complete(fused[row], tails[row]), plans[row])),
            {name: capped.read((row, -1, at)) for at, name in enumerate(channels) if name in found[row].lists},
            plans[row],
        )
        for row in range(len(sessions))
    ]


def _joined(plan: Sequence[Cap], more: Iterable[Cap], lists: Mapping[str, Lists]) -> tuple[Cap, ...]:
    """``plan`` and the caps of videos it lacks, marked by whether they change one of the ``lists`` of their scope."""
    caps = {cap.row: cap for cap in plan}
    for cap in more:
        if cap.row not in caps:
            caps[cap.row] = replace(cap, fired=fires(cap, lists[cap.scope]))
    return tuple(caps.values())


def displayed(order: Lists, caps: Sequence[Cap]) -> Lists:
    """A full order with what acts on it: its own caps, and all guards when a guarded video still comes first."""
    acting = [cap for cap in caps if cap.scope == "order"]
    if any(cap.guard and cap.row == _first(order) for cap in caps):
        acting += [cap for cap in caps if cap.guard]
    return np.asarray(apply_caps(order[None], [acting])[0]) if acting else order


def _first(order: Lists) -> int | None:
    return int(order[0]) if order.size else None
