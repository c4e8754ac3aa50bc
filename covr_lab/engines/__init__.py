"""Engines: generators that reasoners, describers and users borrow by name."""

from covr_lab.engines.base import Engine
from covr_lab.engines.scripted import ScriptedEngine

__all__ = ["Engine", "ScriptedEngine"]
