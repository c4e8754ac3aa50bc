"""The stored row: one per executed session-turn, with everything that a number or a plot needs."""

from __future__ import annotations

import pyarrow as pa

VERSION = 4
TIMING = ("seconds", "module_timing", "stage_timing")  # columns that may differ between two runs of one recipe
ADDED = {  # version -> its new columns; older rows have nulls there
    2: ("modules", "module_timing", "prompts"),
    3: ("stage_target_rank", "routing", "stage_timing"),
    4: (
        *("other_targets", "subset_rank", "exchanges", "comparisons"),
        *("mask_reference", "within", "rejected", "memory", "parent", "instance"),
    ),
}
TOP = 100  # ids kept of the shown ranking

_strings = pa.list_(pa.string())
# A piece of a prompt: a text, or a video with the number of its frames, which ones, how large, with their times or not.
_plain_part = [("text", pa.string()), ("video", pa.string()), ("frames", pa.int32())]
_part = [
    *_plain_part,
    ("places", pa.list_(pa.int32())),  # native indices of chosen frames, null for uniform ones
    ("side", pa.int32()),  # pixels that the longer side may have
    ("timestamps", pa.bool_()),
]


def _prompts(part: list[tuple[str, pa.DataType]]) -> pa.DataType:
    fields = [("module", pa.string()), ("attempt", pa.int32()), ("system", pa.string())]
    fields += [("content", pa.list_(pa.struct(part)))]
    return pa.list_(pa.struct([*fields, ("answer", pa.string()), ("valid", pa.bool_()), ("error", pa.string())]))


SCHEMA = pa.schema(
    [
        ("session_id", pa.string()),
        ("turn", pa.int32()),
        ("reference", pa.string()),
        ("edit", pa.string()),
        ("target", pa.string()),  # null: no target known (chat)
        ("target_rank", pa.int64()),  # 1-based; n_gallery + 1 is a miss; null without a target
        ("target_ties", pa.int64()),  # other videos with exactly the target's score
        ("n_gallery", pa.int64()),
        ("question", pa.string()),
        ("action", pa.string()),
        ("feedback", pa.string()),
        ("source", pa.string()),
        ("participant", pa.string()),
        ("intent", pa.map_(pa.string(), pa.string())),  # search, edit -> query text
        ("satisfaction", pa.string()),
        ("keep", _strings),
        ("require", _strings),
        ("avoid", _strings),
        ("query", pa.string()),  # running query after the turn
        ("shown", pa.string()),
        ("top_ids", _strings),
        ("top_scores", pa.list_(pa.float32())),  # null for an order without scores
        ("channel_top_ids", pa.map_(pa.string(), _strings)),  # after the caps, as the memory keeps them
        ("channel_target_rank", pa.map_(pa.string(), pa.int64())),  # position in that list, absent = not in it
        (
            "caps",
            pa.list_(
                pa.struct(
                    [
                        ("video", pa.string()),
                        ("position", pa.int32()),
                        ("reason", pa.string()),
                        ("scope", pa.string()),
                        ("fired", pa.bool_()),
                    ]
                )
            ),
        ),
        ("events", pa.list_(pa.struct([("kind", pa.string()), ("detail", pa.string())]))),
        ("intent_ok", pa.bool_()),
        ("reflection_ok", pa.bool_()),
        ("calls", pa.int64()),  # of the system; those of its user are in `modules` alone
        ("tokens_in", pa.int64()),
        ("tokens_out", pa.int64()),
        (
            "modules",  # one entry a module that asked an engine, in the order of asking
            pa.list_(
                pa.struct(
                    [
                        ("module", pa.string()),
                        ("outcome", pa.string()),  # valid at first, repaired, or fallback
                        ("calls", pa.int64()),
                        ("tokens_in", pa.int64()),
                        ("tokens_out", pa.int64()),
                    ]
                )
            ),
        ),
        (
            "module_timing",  # aligned with `modules`
            pa.list_(
                pa.struct(
                    [
                        ("module", pa.string()),
                        ("seconds", pa.float64()),
                        ("retries", pa.int64()),
                        ("cached", pa.int64()),
                    ]
                )
            ),
        ),
        ("prompts", _prompts(_part)),  # every call as it was sent and answered
        ("stage_target_rank", pa.map_(pa.string(), pa.int64())),  # in the order of the stages, retrieval first
        ("routing", pa.map_(pa.string(), pa.float64())),  # what the gates of the stages decided
        ("stage_timing", pa.map_(pa.string(), pa.float64())),  # stage -> seconds, its share of the batch
        ("other_targets", _strings),  # `target_rank` is that of whichever target is ranked first
        ("subset_rank", pa.int64()),  # rank within the query's subset; null without one
        ("exchanges", pa.list_(pa.struct([(name, pa.string()) for name in ("question", "part", "slot", "answer")]))),
        (
            "comparisons",  # judgements between candidates, in the order in which they were made
            pa.list_(
                pa.struct(
                    [
                        ("first", pa.string()),
                        ("second", pa.string()),
                        ("outcome", pa.string()),
                        ("probability", pa.float64()),  # that the first one fits better
                        ("reason", pa.string()),
                        ("encounter", pa.int32()),
                    ]
                )
            ),
        ),
        ("mask_reference", pa.bool_()),  # of the query: its reference may be left out of the ranking
        ("within", _strings),  # of the query: what it searches; null for the whole gallery
        ("rejected", _strings),  # videos that the feedback rejects one by one
        ("memory", pa.struct([*((name, _strings) for name in ("keep", "require", "avoid")), ("query", pa.string())])),
        ("parent", pa.string()),  # session that this one was started from ("more like this")
        ("instance", pa.string()),  # session of the data that a study's participant was given
        ("seconds", pa.float64()),
        ("error", pa.string()),
    ],
    metadata={"covr_lab.schema": str(VERSION)},
)


CHANGED = {3: {"prompts": _prompts(_plain_part)}}  # version -> columns that got more with it, as they were before


def schema_of(version: int) -> pa.Schema:
    """Columns of rows that ``version`` of this package's format wrote.

    >>> "prompts" in schema_of(1).names, "prompts" in schema_of(2).names
    (False, True)
    """
    later = {name for added, names in ADDED.items() if added > version for name in names}
    before = {name: kind for at in sorted(CHANGED, reverse=True) if at > version for name, kind in CHANGED[at].items()}
    return pa.schema([(field.name, before.get(field.name, field.type)) for field in SCHEMA if field.name not in later])
