"""BLIP checkpoints by name: the packaged one, and released ones, each pinned to a commit of the Hub.

CoVR's fine-tuned checkpoint has no name here. It is a file: ``model: hf://lucas-ventura/CoVR@COMMIT/webvid-covr.ckpt``,
or the path of a copy, with ``tokenizer: bert-base-uncased`` and ``max_words: 30``.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

TOKENIZERS = {
    "bert-base-uncased": "hf://google-bert/bert-base-uncased@1a7dd4986e3dab699c24ca19b2afd0f5e1a80f37/vocab.txt",
}


@dataclass(frozen=True)
class Preset:
    """Where a checkpoint lies and how it is read.

    Attributes:
        model: folder, here or on the Hub.
        vision_eps: epsilon of the vision layer norms that the weights were trained with; the folders say 1e-5.
        limits: what the weights are no good for, in words for people; "" for a release.
    """

    model: str
    vision_eps: float = 1e-6
    limits: str = ""


# The commits that set 12 text heads in config.json (transformers issue 22625): older ones give wrong outputs.
PRESETS = {
    "demo": Preset(
        str(files("covr_lab.demo").joinpath("weights")),
        limits="the packaged BLIP has learnt coloured shapes that move, and knows next to nothing of real videos: "
        "name a release, like --system.retrievers.blip.blip.model blip-large-coco",
    ),
    "blip-base-coco": Preset("hf://Salesforce/blip-itm-base-coco@e53efa8c21a31de017ae583d8bfe42dfa9ada8cb/"),
    "blip-large-coco": Preset("hf://Salesforce/blip-itm-large-coco@8a0f749d3412b349b49d2a582fc13719d1c87999/"),
}
