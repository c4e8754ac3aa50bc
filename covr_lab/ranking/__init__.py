"""Fusion rules, folds of queries, rank policies."""

from covr_lab.ranking.fold import QueryFold, SlerpFold
from covr_lab.ranking.fusion import Fusion, PenaltyRRF, SimMax, SimSum, StaticRRF, TimeWeightedRRF, UniformRRF
from covr_lab.ranking.policies import RankCap, RankPolicy

__all__ = [
    "Fusion",
    "PenaltyRRF",
    "QueryFold",
    "RankCap",
    "RankPolicy",
    "SimMax",
    "SimSum",
    "SlerpFold",
    "StaticRRF",
    "TimeWeightedRRF",
    "UniformRRF",
]
