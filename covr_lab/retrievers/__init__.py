"""Frozen retrievers."""

from covr_lab.retrievers.base import Retriever
from covr_lab.retrievers.captions import CaptionProxy
from covr_lab.retrievers.composed import BlipRetriever
from covr_lab.retrievers.described import DescribedVideos
from covr_lab.retrievers.dual import DualEncoder, DualEncoderRetriever
from covr_lab.retrievers.imported import ImportedFeatures
from covr_lab.retrievers.qwen_vl import QwenVLEmbedder, QwenVLRetriever

__all__ = [
    "BlipRetriever",
    "CaptionProxy",
    "DescribedVideos",
    "DualEncoder",
    "DualEncoderRetriever",
    "ImportedFeatures",
    "QwenVLEmbedder",
    "QwenVLRetriever",
    "Retriever",
]
