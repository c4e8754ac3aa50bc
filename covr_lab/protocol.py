"""What has to be equal before two runs may be compared."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Ties = Literal["optimistic", "stable", "pessimistic"]


@dataclass(frozen=True, slots=True)
class EvalProtocol:
    """Evaluation protocol, stored with every run.

    Attributes:
        turns: feedback turns after turn 0.
        ties: rank of a target whose score others share (rankings with scores only; an order has positions).
        mask_source: remove the reference video from its own ranking.
    """

    turns: int = 5
    ties: Ties = "optimistic"
    mask_source: bool = True

    def __post_init__(self) -> None:
        if self.turns < 0:
            raise ValueError(f"protocol.turns must be 0 or more, not {self.turns}")

    def as_dict(self) -> dict[str, Any]:
        """Plain values for ``run.json`` and ``metrics.json``."""
        return asdict(self)
