"""Reasoners: what feedback means, by rule or by a model."""

from covr_lab.reasoning.auto_text import AutoTextQuestion
from covr_lab.reasoning.base import Reasoner
from covr_lab.reasoning.cascade import Describer, RuleDescriber, RuleVerifier, Verifier, VLMDescriber, VLMVerifier
from covr_lab.reasoning.heuristic import HeuristicQuestions
from covr_lab.reasoning.intent import ConcatHistory, DualChannelIntent, InitialQuery
from covr_lab.reasoning.judging import Explainer, ModelExplainer, ModelJudge, PairJudge, Verdict
from covr_lab.reasoning.listwise import ListRanker, ModelRanker
from covr_lab.reasoning.merging import IgnoreFeedback, MergedQuery, NewestFeedback
from covr_lab.reasoning.questions import ConstraintQuestion
from covr_lab.reasoning.reflection import ActionSatisfaction, StateReflector
from covr_lab.reasoning.statements import StatementHistory
from covr_lab.reasoning.uncertainty import UncertaintyQuestion
from covr_lab.reasoning.vlm import VLMInitialQuery, VLMIntent, VLMQuestion, VLMReflector, VLMRewrite

__all__ = [
    "ActionSatisfaction",
    "AutoTextQuestion",
    "ConcatHistory",
    "ConstraintQuestion",
    "Describer",
    "DualChannelIntent",
    "Explainer",
    "HeuristicQuestions",
    "IgnoreFeedback",
    "InitialQuery",
    "ListRanker",
    "MergedQuery",
    "ModelExplainer",
    "ModelJudge",
    "ModelRanker",
    "NewestFeedback",
    "PairJudge",
    "Reasoner",
    "RuleDescriber",
    "RuleVerifier",
    "StateReflector",
    "StatementHistory",
    "UncertaintyQuestion",
    "VLMDescriber",
    "VLMInitialQuery",
    "VLMIntent",
    "VLMQuestion",
    "VLMReflector",
    "VLMRewrite",
    "VLMVerifier",
    "Verdict",
    "Verifier",
]
