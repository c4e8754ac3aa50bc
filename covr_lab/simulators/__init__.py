"""Users: deterministic, scripted."""

from covr_lab.simulators.base import UserSimulator
from covr_lab.simulators.rules import RuleUser
from covr_lab.simulators.scripted import ScriptedUser

__all__ = ["RuleUser", "ScriptedUser", "UserSimulator"]
