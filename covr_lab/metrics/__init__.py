"""Metrics that Lightning logs while a run is on the way."""

from covr_lab.metrics.session import TurnBRI, TurnHits, TurnMedianRank, TurnMetric, TurnMRR, TurnRecall

__all__ = ["TurnBRI", "TurnHits", "TurnMRR", "TurnMedianRank", "TurnMetric", "TurnRecall"]
