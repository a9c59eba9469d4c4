"""``python -m nbtc``: see :mod:`nbtc.cli`."""

from __future__ import annotations

import sys

from nbtc.cli import main

if __name__ == "__main__":
    sys.exit(main())
