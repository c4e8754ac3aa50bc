"""covr_lab: interactive, training-free composed video retrieval."""

__version__ = "0.1.0"
