"""numba-cuda is found through a redirection at import time, so checkers cannot read its sources."""

from typing import Any

def __getattr__(name: str) -> Any: ...
