"""Data sets as Lightning data modules: annotation rows, targets and the gallery."""

from covr_lab.data.avsd import AVSD
from covr_lab.data.base import SessionBatch, Triplet, TripletDataModule
from covr_lab.data.check import describe, report
from covr_lab.data.cirr import CIRR
from covr_lab.data.covr_r import CoVRR
from covr_lab.data.demo import DemoText, DemoWorld
from covr_lab.data.egocvr import EgoCVR
from covr_lab.data.fashioniq import FashionIQ
from covr_lab.data.finecvr import FineCVR
from covr_lab.data.folder import VideoFolder
from covr_lab.data.msvd_captions import MSVDCaptions
from covr_lab.data.text_video import LSMDC, MSRVTT, MSVD, ActivityNet, DiDeMo, TextVideo
from covr_lab.data.triplets import Columns, TripletFile
from covr_lab.data.webvid_covr import DenseWebVidCoVR, WebVidCoVR
from covr_lab.data.words import WordWorld

__all__ = [
    "AVSD",
    "CIRR",
    "LSMDC",
    "MSRVTT",
    "MSVD",
    "ActivityNet",
    "CoVRR",
    "Columns",
    "DemoText",
    "DemoWorld",
    "DenseWebVidCoVR",
    "DiDeMo",
    "EgoCVR",
    "FashionIQ",
    "FineCVR",
    "MSVDCaptions",
    "SessionBatch",
    "TextVideo",
    "Triplet",
    "TripletDataModule",
    "TripletFile",
    "VideoFolder",
    "WebVidCoVR",
    "WordWorld",
    "describe",
    "report",
]
