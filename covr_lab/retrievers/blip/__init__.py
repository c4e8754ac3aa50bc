"""BLIP (Li et al., ICML 2022), frozen: the encoder behind the composed channel and the text-to-video channel."""

from covr_lab.retrievers.blip.model import Blip

__all__ = ["Blip"]
