"""Engines: generators that reasoners, describers and users borrow by name."""

from covr_lab.engines.base import Engine, EngineError
from covr_lab.engines.cached import CachedEngine
from covr_lab.engines.hf import HFEngine
from covr_lab.engines.openai import OpenAIEngine
from covr_lab.engines.scripted import ScriptedEngine

__all__ = ["CachedEngine", "Engine", "EngineError", "HFEngine", "OpenAIEngine", "ScriptedEngine"]
