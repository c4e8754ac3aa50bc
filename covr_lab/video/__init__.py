"""Video reading behind one interface."""

from covr_lab.video.base import Clip, Probe, VideoError, VideoReader
from covr_lab.video.readers import DecordReader, PyAVReader
from covr_lab.video.samplers import All, FrameSampler, Middle, Uniform

__all__ = [
    "All",
    "Clip",
    "DecordReader",
    "FrameSampler",
    "Middle",
    "Probe",
    "PyAVReader",
    "Uniform",
    "VideoError",
    "VideoReader",
]
