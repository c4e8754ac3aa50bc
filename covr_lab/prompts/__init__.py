"""Prompt suites of the model-backed modules: YAML texts and their loader."""

from covr_lab.prompts.suite import SUITES, Kind, Prompt, Value, load_prompt

__all__ = ["SUITES", "Kind", "Prompt", "Value", "load_prompt"]
