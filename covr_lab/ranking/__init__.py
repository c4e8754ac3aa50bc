"""Fusion rules, folds of queries, rank policies, refining stages."""

from covr_lab.ranking.direct import DirectRank
from covr_lab.ranking.fold import MeanFold, QueryFold, SlerpFold
from covr_lab.ranking.fusion import Fusion, PenaltyRRF, SimMax, SimSum, StaticRRF, TimeWeightedRRF, UniformRRF
from covr_lab.ranking.matching import MatchRerank
from covr_lab.ranking.pairwise import PairwiseRank
from covr_lab.ranking.policies import RankCap, RankPolicy
from covr_lab.ranking.rerank import GatedRerank
from covr_lab.ranking.stages import Stage
from covr_lab.ranking.verify import VerifyCluster

__all__ = [
    "DirectRank",
    "Fusion",
    "GatedRerank",
    "MatchRerank",
    "MeanFold",
    "PairwiseRank",
    "PenaltyRRF",
    "QueryFold",
    "RankCap",
    "RankPolicy",
    "SimMax",
    "SimSum",
    "SlerpFold",
    "Stage",
    "StaticRRF",
    "TimeWeightedRRF",
    "UniformRRF",
    "VerifyCluster",
]
