"""Reasoners: what feedback means, by rule or by a model."""

from covr_lab.reasoning.base import Reasoner
from covr_lab.reasoning.intent import ConcatHistory, DualChannelIntent, InitialQuery
from covr_lab.reasoning.questions import ConstraintQuestion
from covr_lab.reasoning.reflection import StateReflector

__all__ = ["ConcatHistory", "ConstraintQuestion", "DualChannelIntent", "InitialQuery", "Reasoner", "StateReflector"]
