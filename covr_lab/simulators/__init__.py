"""Users: deterministic, scripted, played by a model, answering questions, and degraded."""

from covr_lab.simulators.answering import AnsweringUser
from covr_lab.simulators.base import UserSimulator
from covr_lab.simulators.caption_qa import CaptionQAUser
from covr_lab.simulators.degraded import Degradation, DegradedUser, Policy
from covr_lab.simulators.dialogue import AnnotationUser, DialogueUser
from covr_lab.simulators.noise import CharacterNoise, WordNoise
from covr_lab.simulators.recorded import RecordedUser
from covr_lab.simulators.rules import RuleUser
from covr_lab.simulators.scripted import ScriptedUser
from covr_lab.simulators.speech import DropConstraints, Inconsistent, Terse, Verbose
from covr_lab.simulators.videoqa import VideoQAUser
from covr_lab.simulators.vlm import VLMUser

__all__ = [
    "AnnotationUser",
    "AnsweringUser",
    "CaptionQAUser",
    "CharacterNoise",
    "Degradation",
    "DegradedUser",
    "DialogueUser",
    "DropConstraints",
    "Inconsistent",
    "Policy",
    "RecordedUser",
    "RuleUser",
    "ScriptedUser",
    "Terse",
    "UserSimulator",
    "VLMUser",
    "Verbose",
    "VideoQAUser",
    "WordNoise",
]
