"""Frozen captioners."""

from covr_lab.captioners.annotations import AnnotationCaptioner, Annotator
from covr_lab.captioners.base import Captioner
from covr_lab.captioners.vlm import VLMCaptioner

__all__ = ["AnnotationCaptioner", "Annotator", "Captioner", "VLMCaptioner"]
