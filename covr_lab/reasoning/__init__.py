"""Reasoners: what feedback means, by rule or by a model."""

from covr_lab.reasoning.base import Reasoner
from covr_lab.reasoning.intent import ConcatHistory, DualChannelIntent, InitialQuery
from covr_lab.reasoning.questions import ConstraintQuestion
from covr_lab.reasoning.reflection import StateReflector
from covr_lab.reasoning.vlm import VLMInitialQuery, VLMIntent, VLMQuestion, VLMReflector, VLMRewrite

__all__ = [
    "ConcatHistory",
    "ConstraintQuestion",
    "DualChannelIntent",
    "InitialQuery",
    "Reasoner",
    "StateReflector",
    "VLMInitialQuery",
    "VLMIntent",
    "VLMQuestion",
    "VLMReflector",
    "VLMRewrite",
]
