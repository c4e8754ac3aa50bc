"""Fusion rules and rank policies."""

from covr_lab.ranking.fusion import Fusion, StaticRRF, TimeWeightedRRF
from covr_lab.ranking.policies import RankCap, RankPolicy

__all__ = ["Fusion", "RankCap", "RankPolicy", "StaticRRF", "TimeWeightedRRF"]
