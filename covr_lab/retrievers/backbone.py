"""Networks of transformers without a head, for encoders: whole, and loaded once for all that name the same weights."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from weakref import WeakValueDictionary

from covr_lab.engines.network import COMMIT, Source, check_weights, quiet
from covr_lab.types import Refused

HEAD = "lm_head.weight"  # predicts words: no encoder needs it, and embedding checkpoints have it or lack it


class Backbone:
    """A network with its processor; shared by encoders, so it is not changed once it is loaded."""

    def __init__(self, module: Any, processor: Any) -> None:
        self.module, self.processor = module, processor


LOADED: WeakValueDictionary[tuple[str, str, str], Backbone] = WeakValueDictionary()


def source_of(model: str, revision: str | None, dtype: str, attention: str) -> Source:
    """Where an encoder's weights come from.

    Raises:
        ValueError: the revision is no commit.
    """
    if revision is not None and not COMMIT.fullmatch(revision):
        raise ValueError(f"revision must be a commit of 40 hexadecimal digits, not '{revision}': branches move")
    return Source(model, revision, None, dtype, attention)


def load_backbone(source: Source, families: Collection[str], wanted: str) -> Backbone:
    """The network of ``source`` without its head; the one in memory where an encoder already holds equal weights.

    Args:
        source: see :func:`source_of`.
        families: model types that are understood, as ``config.json`` calls them.
        wanted: these in words, for the message.

    Raises:
        Refused: it cannot be read, is another kind of model, or a weight is missing, unknown or of a wrong shape.
    """
    key = (source.identity, source.dtype, source.attention)
    found = LOADED.get(key) or _load(source)
    if found.module.config.model_type not in families:
        raise Refused(f"model '{source.model}' is a {found.module.config.model_type} model: name {wanted}")
    LOADED[key] = found
    return found


def _load(source: Source) -> Backbone:
    from transformers import AutoModel, AutoProcessor

    folder = source.folder()
    # A weight of another shape is then told like one that is missing.
    told = {"output_loading_info": True, "ignore_mismatched_sizes": True}
    try:
        with quiet():
            read: Any = AutoProcessor
            processor = read.from_pretrained(folder)
            module, report = AutoModel.from_pretrained(
                folder, dtype=source.dtype, attn_implementation=source.attention, **told
            )
    except Exception as error:  # of transformers, safetensors, the operating system: without a common base
        reason = str(error).strip().split("\n")[0][:300] or type(error).__name__
        raise Refused(f"model '{source.model}' cannot be loaded: {reason}") from error
    check_weights(source.model, report, lambda name: name == HEAD)
    return Backbone(module, processor)
