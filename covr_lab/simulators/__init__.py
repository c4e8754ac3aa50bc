"""Users: deterministic, scripted, played by a model."""

from covr_lab.simulators.base import UserSimulator
from covr_lab.simulators.rules import RuleUser
from covr_lab.simulators.scripted import ScriptedUser
from covr_lab.simulators.vlm import VLMUser

__all__ = ["RuleUser", "ScriptedUser", "UserSimulator", "VLMUser"]
