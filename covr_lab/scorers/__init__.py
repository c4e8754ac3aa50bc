"""Pair scorers of rerankers."""

from covr_lab.scorers.attributes import AttributeScorer
from covr_lab.scorers.base import Pair, PairScorer
from covr_lab.scorers.cached import CachedScorer
from covr_lab.scorers.endpoint import RerankEndpoint
from covr_lab.scorers.itm import ITMScorer
from covr_lab.scorers.oracle import OracleScorer
from covr_lab.scorers.qwen import QwenReranker

__all__ = [
    "AttributeScorer",
    "CachedScorer",
    "ITMScorer",
    "OracleScorer",
    "Pair",
    "PairScorer",
    "QwenReranker",
    "RerankEndpoint",
]
