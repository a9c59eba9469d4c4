"""GPU tests are collected only where there is a GPU."""

from __future__ import annotations

from nbtc import testing

collect_ignore_glob = [] if testing.has_gpu() else ["test_*.py"]
