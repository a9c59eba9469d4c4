"""What a wheel of nbtc must hold, and must not: ``python tests/wheel_content.py nbtc.whl``."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def problems(wheel: Path) -> list[str]:
    """Return what is wrong with a wheel, empty if nothing."""
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if ".dist-info/" not in n]
        licences = [n for n in archive.namelist() if n.endswith("/licenses/LICENSE")]
    have = set(names)
    want = {"nbtc/py.typed", *_sources("nbtc", ROOT / "nbtc")}
    want |= _sources("nbtc/intrinsics", ROOT / "intrinsics")
    found = [f"{name} is missing" for name in sorted(want - have)]
    found += [f"{name} does not belong there" for name in sorted(have - want)]
    found += [f"{name} is there twice" for name in sorted({n for n in names if names.count(n) > 1})]
    if not licences:
        found.append("the licence is missing")
    return found


def _sources(package: str, folder: Path) -> set[str]:
    """Return the archive names of a package's sources, without the symlink to intrinsics."""
    paths = (p.relative_to(folder) for p in folder.rglob("*.py"))
    return {f"{package}/{p.as_posix()}" for p in paths if "intrinsics" not in p.parts}


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]))
    print("\n".join(wrong) or f"{sys.argv[1]}: as it must be")
    sys.exit(1 if wrong else 0)
