"""Frozen retrievers."""

from covr_lab.retrievers.base import Retriever
from covr_lab.retrievers.captions import CaptionProxy
from covr_lab.retrievers.composed import BlipRetriever
from covr_lab.retrievers.imported import ImportedFeatures

__all__ = ["BlipRetriever", "CaptionProxy", "ImportedFeatures", "Retriever"]
