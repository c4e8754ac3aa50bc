"""Frozen retrievers."""

from covr_lab.retrievers.base import Retriever
from covr_lab.retrievers.captions import CaptionProxy

__all__ = ["CaptionProxy", "Retriever"]
