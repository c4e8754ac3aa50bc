"""Frozen captioners."""

from covr_lab.captioners.base import Captioner
from covr_lab.captioners.vlm import VLMCaptioner

__all__ = ["Captioner", "VLMCaptioner"]
