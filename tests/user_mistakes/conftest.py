"""Everything here runs on the emulator, and compiles anew."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _emulate(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")
    monkeypatch.setenv("NBTC_CACHE_DIR", "")
