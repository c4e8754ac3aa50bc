"""Reasoners: what feedback means, by rule or by a model."""

from covr_lab.reasoning.base import Reasoner
from covr_lab.reasoning.intent import ConcatHistory, DualChannelIntent, InitialQuery
from covr_lab.reasoning.merging import IgnoreFeedback, MergedQuery, NewestFeedback
from covr_lab.reasoning.questions import ConstraintQuestion
from covr_lab.reasoning.reflection import ActionSatisfaction, StateReflector
from covr_lab.reasoning.uncertainty import UncertaintyQuestion
from covr_lab.reasoning.vlm import VLMInitialQuery, VLMIntent, VLMQuestion, VLMReflector, VLMRewrite

__all__ = [
    "ActionSatisfaction",
    "ConcatHistory",
    "ConstraintQuestion",
    "DualChannelIntent",
    "IgnoreFeedback",
    "InitialQuery",
    "MergedQuery",
    "NewestFeedback",
    "Reasoner",
    "StateReflector",
    "UncertaintyQuestion",
    "VLMInitialQuery",
    "VLMIntent",
    "VLMQuestion",
    "VLMReflector",
    "VLMRewrite",
]
