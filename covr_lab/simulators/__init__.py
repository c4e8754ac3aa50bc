"""Users: deterministic, scripted, played by a model, and degraded."""

from covr_lab.simulators.base import UserSimulator
from covr_lab.simulators.degraded import Degradation, DegradedUser, Policy
from covr_lab.simulators.noise import CharacterNoise, WordNoise
from covr_lab.simulators.recorded import RecordedUser
from covr_lab.simulators.rules import RuleUser
from covr_lab.simulators.scripted import ScriptedUser
from covr_lab.simulators.speech import DropConstraints, Inconsistent, Terse, Verbose
from covr_lab.simulators.vlm import VLMUser

__all__ = [
    "CharacterNoise",
    "Degradation",
    "DegradedUser",
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
    "WordNoise",
]
