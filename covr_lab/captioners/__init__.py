"""Frozen captioners."""

from covr_lab.captioners.base import Captioner

__all__ = ["Captioner"]
