"""How close explanations are to the videos that they put first, next to the queries (X-CoT; dossier, section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch

from covr_lab.functional.bootstrap import bootstrap_means
from covr_lab.results.explanations import explanation
from covr_lab.retrievers.base import Retriever
from covr_lab.types import Refused

LEVELS: Final = (2.5, 97.5)


def opening_retriever(run: Mapping[str, Any]) -> Retriever:
    """The retriever of turn 0 of a run, loaded and bound to its gallery.

    Raises:
        Refused: recipe or data cannot be opened any more, or the index is gone.
    """
    from covr_lab.recipe import build_parser, explain

    parser = build_parser()
    try:
        parts = parser.instantiate(parser.parse_object(run["recipe"]))
        parts.data.setup("predict")
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise Refused(f"run {run['name']}: {explain(str(error))}") from error
    retriever: Retriever = parts.system.retrievers[run["recipe"]["system"]["init_args"]["opening"]]
    retriever.load()
    retriever.bind(parts.data.gallery, parts.data.videos)
    return retriever


@torch.inference_mode()
def similarities(rows: Sequence[Mapping[str, Any]], retriever: Retriever) -> list[tuple[str, float, float]]:
    """Cosine of explanation and top video, and of query and top video, of the turns 0 that explain their top video.

    The explanation is every reason for which the video won, joined; a reason longer than the encoder reads is cut.

    Returns:
        Session id, cosine of the explanation, cosine of the query (with its reference where it has one).
    """
    found = list[tuple[str, float, float]]()
    for row in rows:
        text = explanation(row, row["shown"]) if row["turn"] == 0 and row["shown"] else ""
        if text:
            (video,) = retriever.encode_videos([row["shown"]]).float().cpu()
            said = retriever.encode_queries([text, row["edit"]], [None, row["reference"]]).float().cpu()
            found.append((row["session_id"], *(said @ video).tolist()))
    return found


def similarity_text(found: Sequence[tuple[str, float, float]], turns: int) -> str:
    """Means of both over the sessions, and their difference with its paired 95 % interval.

    Args:
        found: of :func:`similarities`.
        turns: turns 0 of the run.

    Raises:
        Refused: nothing was explained.
    """
    if not found:
        raise Refused("no turn 0 of this run explains its first video: nothing was compared, or no reasons were given")
    explained, asked = np.array([values[1:] for values in found], dtype=np.float64).T
    gain = (explained - asked)[:, None]
    low, high = np.percentile(bootstrap_means(gain), LEVELS)
    return (
        f"cosine with the first video, {len(found)} of {turns} turns 0: explanation {explained.mean():.3f}, query "
        f"{asked.mean():.3f}, difference {gain.mean():+.3f} (95 % {low:+.3f} to {high:+.3f}, paired bootstrap)"
    )
