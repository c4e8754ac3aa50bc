"""Reasoners: what feedback means, by rule or by a model."""

from covr_lab.reasoning.base import Reasoner
from covr_lab.reasoning.cascade import Describer, RuleDescriber, RuleVerifier, Verifier, VLMDescriber, VLMVerifier
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
    "Describer",
    "DualChannelIntent",
    "IgnoreFeedback",
    "InitialQuery",
    "MergedQuery",
    "NewestFeedback",
    "Reasoner",
    "RuleDescriber",
    "RuleVerifier",
    "StateReflector",
    "UncertaintyQuestion",
    "VLMDescriber",
    "VLMInitialQuery",
    "VLMIntent",
    "VLMQuestion",
    "VLMReflector",
    "VLMRewrite",
    "VLMVerifier",
    "Verifier",
]
