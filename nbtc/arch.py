"""GPU targets: names, families, and what an instruction may require of them.

A target is written as ptxas writes it, ``"sm_90a"``. The suffix ``a`` means code for exactly that
chip, ``f`` code for its family, no suffix code that runs on later chips too.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from nbtc.errors import ArchError


@dataclass(frozen=True, slots=True)
class Arch:
    """One compilation target.

    Attributes:
        name: as ptxas writes it, ``"sm_90a"``.
        major: major compute capability.
        minor: minor compute capability.
        suffix: ``""``, ``"a"`` (this chip only) or ``"f"`` (this family).
        min_isa: lowest PTX ISA version that knows the target.
        chip: what people call it.
    """

    name: str
    major: int
    minor: int
    suffix: str
    min_isa: tuple[int, int]
    chip: str

    @property
    def cc(self) -> tuple[int, int]:
        """Compute capability as ``(major, minor)``."""
        return self.major, self.minor

    @property
    def compute(self) -> str:
        """Name of the virtual target that libNVVM takes, ``"compute_90a"``."""
        return "compute_" + self.name[3:]

    def __str__(self) -> str:
        return self.name


_SUPPORTED = (
    Arch("sm_90", 9, 0, "", (7, 8), "Hopper"),
    Arch("sm_90a", 9, 0, "a", (8, 0), "Hopper"),
    Arch("sm_100", 10, 0, "", (8, 6), "data-centre Blackwell"),
    Arch("sm_100a", 10, 0, "a", (8, 6), "data-centre Blackwell"),
    Arch("sm_100f", 10, 0, "f", (8, 8), "data-centre Blackwell family"),
    Arch("sm_103a", 10, 3, "a", (8, 8), "data-centre Blackwell Ultra"),
)
SUPPORTED: dict[str, Arch] = {a.name: a for a in _SUPPORTED}
"""Every target that nbtc compiles for, by name."""

# Known by name only, so that an error can say what the chip is.
_OTHERS = {
    "sm_110": "Thor",
    "sm_120": "consumer Blackwell, which has neither wgmma nor tcgen05",
    "sm_121": "consumer Blackwell, which has neither wgmma nor tcgen05",
}

TCGEN05 = ("sm_100a", "sm_100f", "sm_103a")
"""Targets that have tcgen05, TMEM and the other data-centre Blackwell instructions."""


@functools.cache
def parse(arch: str | Arch) -> Arch:
    """Return the target called ``arch``.

    Raises:
        ArchError: the name is not a supported target; the message lists all that are.
    """
    if isinstance(arch, Arch):
        return arch
    name = str(arch).strip().lower()
    name = re.sub(r"^compute_", "sm_", name)
    if name in SUPPORTED:
        return SUPPORTED[name]
    what = _OTHERS.get(name.rstrip("af"))
    what = f" ({what})" if what else ""
    raise ArchError(
        f"arch={arch!r} is not supported{what}; supported: {', '.join(SUPPORTED)}" + _hint(name)
    )


def _hint(name: str) -> str:
    chips = {"h100": "90", "h200": "90", "hopper": "90", "b100": "100", "b200": "100"}
    digits = re.sub(r"\D", "", chips.get(name, name))
    near = [n for n in SUPPORTED if digits and n[3:].rstrip("af") == digits]
    return f". Write {near[-1]!r}" if near else ""


def from_cc(cc: tuple[int, int]) -> Arch:
    """Return the best target for a device of compute capability ``cc``: ``sm_90a`` for (9, 0).

    Raises:
        ArchError: no supported target runs on that device.
    """
    for suffix in ("a", "f", ""):
        found = SUPPORTED.get(f"sm_{cc[0]}{cc[1]}{suffix}")
        if found:
            return found
    raise ArchError(
        f"a device of compute capability {cc[0]}.{cc[1]} is not supported; "
        f"supported targets: {', '.join(SUPPORTED)}"
    )


def runs_on(built_for: str | Arch, cc: tuple[int, int]) -> bool:
    """Return whether machine code built for a target runs on a device of capability ``cc``."""
    target = parse(built_for)
    if target.suffix == "a":
        return target.cc == cc
    return target.major == cc[0] and target.minor <= cc[1]


Requirement = str | tuple[str, ...]
"""What an instruction needs: ``"sm_90"`` (that and later), ``"sm_90a"`` (exactly), or a list."""


def satisfies(target: str | Arch, need: Requirement) -> bool:
    """Return whether ``target`` has an instruction whose requirement is ``need``."""
    have = parse(target)
    if isinstance(need, tuple):
        return any(satisfies(have, one) for one in need)
    match = re.fullmatch(r"sm_(\d+)(\d)([af]?)", need)
    if match is None:
        raise ArchError(f"requirement {need!r} is not a target name")
    major, minor, suffix = int(match[1]), int(match[2]), match[3]
    if suffix == "a":
        return have.name == need
    if suffix == "f":
        return have.suffix != "" and have.major == major and have.minor >= minor
    return have.cc >= (major, minor)


def requirement_text(need: Requirement) -> str:
    """Return a requirement in words, for error messages and the reference."""
    if isinstance(need, tuple):
        return " or ".join(need)
    return need if need[-1] in "af" else f"{need} or later"


def check_requirement(what: str, target: str | Arch, need: Requirement) -> None:
    """Raise ArchError unless ``target`` satisfies ``need``; name the right target for ``what``."""
    have = parse(target)
    if satisfies(have, need):
        return
    names = need if isinstance(need, tuple) else (need,)
    best = next((n for n in names if parse_cc(n) == have.cc), names[0])
    if best[-1] not in "af" and best not in SUPPORTED:
        best = next(iter(SUPPORTED))
    raise ArchError(
        f"{what} needs {requirement_text(need)}, not {have.name}: pass arch={best!r}"
        if have.cc == parse_cc(best)
        else f"{what} does not exist on {have.name} ({have.chip}); it needs "
        f"{requirement_text(need)}"
    )


def parse_cc(name: str) -> tuple[int, int]:
    """Return the compute capability in a target name: (9, 0) for ``"sm_90a"``."""
    digits = re.sub(r"\D", "", name)
    return int(digits[:-1]), int(digits[-1])
