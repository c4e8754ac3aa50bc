from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def videos() -> Path:
    """The folder of real clips."""
    if "COVR_VIDEOS" not in os.environ:
        pytest.skip("COVR_VIDEOS is not set (folder of real clips)")
    return Path(os.environ["COVR_VIDEOS"])
