"""Data sets as Lightning data modules: annotation rows, targets and the gallery."""

from covr_lab.data.base import SessionBatch, Triplet, TripletDataModule
from covr_lab.data.check import describe, report
from covr_lab.data.covr_r import CoVRR
from covr_lab.data.demo import DemoText, DemoWorld
from covr_lab.data.finecvr import FineCVR
from covr_lab.data.folder import VideoFolder
from covr_lab.data.triplets import Columns, TripletFile
from covr_lab.data.webvid_covr import DenseWebVidCoVR, WebVidCoVR
from covr_lab.data.words import WordWorld

__all__ = [
    "CoVRR",
    "Columns",
    "DemoText",
    "DemoWorld",
    "DenseWebVidCoVR",
    "FineCVR",
    "SessionBatch",
    "Triplet",
    "TripletDataModule",
    "TripletFile",
    "VideoFolder",
    "WebVidCoVR",
    "WordWorld",
    "describe",
    "report",
]
