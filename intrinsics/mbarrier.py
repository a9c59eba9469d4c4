"""mbarrier."""
from __future__ import annotations

from typing import Literal

from nbtc.ptx.kinds import Pred, Shared, U32
from nbtc.ptx.spec import ptx


@ptx("mbarrier.init.shared::cta.b64 [{bar}], {count};", isa=(7, 8), arch="sm_80")
def init(bar: Shared, count: U32) -> None:
    """Initialise."""


def _sem(v):
    if bool(v.sem) != bool(v.scope):
        return f"sem={v.sem!r} with scope={v.scope!r}: give both or neither"
    return None


@ptx(
    "mbarrier.try_wait.parity{.sem}{.scope}.shared::cta.b64 {ret}, [{bar}], {parity}{, hint};",
    isa=(7, 8), arch="sm_90", check=_sem,
)
def try_wait_parity(
    bar: Shared, parity: U32, hint: U32 | None = None, *,
    sem: Literal["", "acquire", "relaxed"] = "", scope: Literal["", "cta", "cluster"] = "",
) -> Pred:
    """Wait."""
