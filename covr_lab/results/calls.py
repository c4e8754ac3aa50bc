"""What a turn asked of engines, as stored: what it cost a module, and every prompt with its answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from covr_lab.engines.request import Call, Media
from covr_lab.video.samplers import Listed

OUTCOMES: Final = ("valid", "repaired", "fallback")
COUNTS: Final = ("calls", "tokens_in", "tokens_out")
USER: Final = "user"  # modules of the simulated user begin with this; their calls are no cost of the system


def by_module(calls: Sequence[Call]) -> list[tuple[str, list[Call]]]:
    """Calls of a turn by what was asked for: a module's first call and, where there is one, its repair."""
    groups: list[tuple[str, list[Call]]] = []
    for call in calls:
        if call.request.attempt == 1:
            groups.append((call.request.role, []))
        groups[-1][1].append(call)
    return groups


def outcome(calls: Sequence[Call]) -> str:
    """What came of the calls of one module: ``valid`` at once, ``repaired``, or the ``fallback``."""
    if not calls[-1].valid:
        return "fallback"
    return "valid" if len(calls) == 1 else "repaired"


def call_columns(calls: Sequence[Call]) -> dict[str, Any]:
    """The columns of a row that are about engines."""
    groups = by_module(calls)
    system = [call for role, group in groups if not role.startswith(USER) for call in group]
    return {
        "calls": len(system),
        "tokens_in": sum(call.response.tokens_in for call in system),
        "tokens_out": sum(call.response.tokens_out for call in system),
        "modules": [
            {
                "module": role,
                "outcome": outcome(group),
                "calls": len(group),
                "tokens_in": sum(call.response.tokens_in for call in group),
                "tokens_out": sum(call.response.tokens_out for call in group),
            }
            for role, group in groups
        ],
        "module_timing": [
            {
                "module": role,
                "seconds": sum(call.response.seconds for call in group),
                "retries": sum(call.response.retries for call in group),
                "cached": sum(call.response.cached for call in group),
            }
            for role, group in groups
        ],
        "prompts": [_prompt(call) for call in calls],
    }


def _prompt(call: Call) -> dict[str, Any]:
    request = call.request
    return {
        "module": request.role,
        "attempt": request.attempt,
        "system": request.system,
        "content": [{"text": part} if isinstance(part, str) else _shown(part) for part in request.content],
        "answer": call.response.text,
        "valid": call.valid,
        "error": call.response.error or None,
    }


def _shown(media: Media) -> dict[str, Any]:
    chosen = list(media.sampler.chosen) if isinstance(media.sampler, Listed) else None
    look = {"side": media.side, "timestamps": media.timestamps}
    return {"video": media.video, "frames": media.frames, "places": chosen, **look}


def module_summary(table: pa.Table) -> dict[str, dict[str, int]]:
    """Module -> times it asked, what came of it, calls and tokens, over all rows of a run; modules sorted by name."""
    found: dict[str, Counter[str]] = {}
    for row in table["modules"].to_pylist():
        for entry in row or ():
            counts = found.setdefault(entry["module"], Counter())
            counts.update({"asked": 1, entry["outcome"]: 1} | {name: entry[name] for name in COUNTS})
    return {name: {key: found[name][key] for key in ("asked", *OUTCOMES, *COUNTS)} for name in sorted(found)}


def cost_per_turn(table: pa.Table, turns: int) -> dict[str, list[int]]:
    """Calls and tokens of the system in turns 0 to ``turns``, summed over sessions."""
    at = [table.filter(pc.equal(table["turn"], turn)) for turn in range(turns + 1)]
    return {name: [pc.sum(part[name]).as_py() or 0 for part in at] for name in COUNTS}


def module_seconds(table: pa.Table) -> dict[str, dict[str, float]]:
    """Module -> seconds of its calls, times a call was sent again, and calls answered from a cache."""
    found: dict[str, Counter[str]] = {}
    for row in table["module_timing"].to_pylist():
        for entry in row or ():
            counts = found.setdefault(entry["module"], Counter())
            counts.update({name: entry[name] for name in ("seconds", "retries", "cached")})
    return {name: dict(found[name]) for name in sorted(found)}
