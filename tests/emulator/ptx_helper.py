"""Small PTX kernels by hand: every body line is a source line of ``kernel.py``."""

from __future__ import annotations

import itertools
import re

FILE = "/user/kernel.py"
_labels = itertools.count()


def wait(barrier: str, parity: int | str, form: str = "try_wait", sem: str = "") -> str:
    """Spin on a phase, on one line."""
    n = next(_labels)
    return (
        f"W{n}: mbarrier.{form}.parity{sem}.shared::cta.b64 %p15, [{barrier}], {parity}; "
        f"@!%p15 bra W{n};"
    )


def kernel(body: str, *, shared: str = "", params: str = "", target: str = "sm_90a",
           directives: str = "", functions: str = "") -> str:  # fmt: skip
    """Wrap a body; ``.loc`` maps its n-th line to line n of ``kernel.py``."""
    lines = []
    for number, line in enumerate(body.splitlines(), 1):
        text = line.split("//")[0].rstrip()
        if text.strip():
            lines.append(f".loc 1 {number} 1\n{text}")
    code = "\n".join(lines)
    return f"""
.version 8.8
.target {target}
.address_size 64
{functions}
.visible .entry k({params})
{directives}
{{
.reg .pred %p<16>;
.reg .b16 %rs<16>;
.reg .b32 %r<256>;
.reg .b64 %rd<64>;
.reg .f32 %f<256>;
.reg .b32 %thread, %warp, %lane;
{shared}
mov.u32 %thread, %tid.x;
shr.u32 %warp, %thread, 5;
and.b32 %lane, %thread, 31;
{code}
ret;
}}
.file 1 "{FILE}"
"""


def line_of(body: str, mark: str) -> int:
    """Give the number of the line that carries the comment ``// mark``."""
    for number, line in enumerate(body.splitlines(), 1):
        if re.search(rf"//\s*{re.escape(mark)}\b", line):
            return number
    raise KeyError(mark)
