"""Run one instruction on arrays: converged, under a guard, and in a divergent branch."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbtc.emulator import launch

LANES = 32
_REG = {8: "b16", 16: "b16", 32: "b32", 64: "b64", 1: "pred"}


def program(
    text: str, inputs: list[str], outputs: list[str], mode: str, registers: str = ""
) -> str:
    """PTX that loads inputs, runs ``text`` and stores outputs.

    ``text`` uses $0, $1, ... for outputs and then inputs. Types are like ``u32``; ``pred`` outputs
    are stored as 0/1 in 32 bits, ``pred`` inputs are read from 32 bits.
    """
    kinds = outputs + inputs
    out, declare, before, after = [], [], [], []
    params = ", ".join(f".param .u64 p{i}" for i in range(len(kinds)))
    for i, kind in enumerate(kinds):
        bits = 1 if kind == "pred" else int(kind[1:].replace("f16", "16"))
        declare.append(f".reg .{_REG[bits]} x{i};")
        size = 4 if kind == "pred" else bits // 8
        memory = "b32" if kind == "pred" else f"b{bits}"
        place = (
            f"ld.param.u64 a, [p{i}]; cvta.to.global.u64 a, a; mul.wide.u32 b, t, {size}; "
            f"add.s64 a, a, b;"
        )
        if i >= len(outputs):
            target = "k" if kind == "pred" else f"x{i}"
            before.append(f"{place} ld.global.{memory} {target}, [a];")
            if kind == "pred":
                before.append(f"setp.ne.u32 x{i}, k, 0;")
        else:
            zero = (
                "setp.ne.u32 x{0}, 0, 0;" if kind == "pred" else f"mov.b{max(bits, 16)} x{{0}}, 0;"
            )
            before.append(zero.format(i))
            store = (
                f"selp.u32 k, 1, 0, x{i}; st.global.b32 [a], k;"
                if kind == "pred"
                else f"st.global.{memory} [a], x{i};"
            )
            after.append(f"{place} {store}")
        out.append(f"x{i}")
    body = text
    for i in reversed(range(len(out))):
        body = body.replace(f"${i}", out[i])
    if mode == "guard":
        body = f"@odd {body}" if body.count(";") == 1 else f"@!odd bra L1; {{ {body} }} L1:"
    elif mode == "branch":
        body = f"@!odd bra L1; {{ {body} }} L1:"
    return f"""
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k({params})
{{
.reg .b64 a, b; .reg .b32 t, k; .reg .pred odd;
{" ".join(declare)} {registers}
mov.u32 t, %tid.x; and.b32 k, t, 1; setp.ne.u32 odd, k, 0;
{" ".join(before)}
{body}
{" ".join(after)}
ret;
}}
"""


def run_op(text: str, outputs: list[Any], inputs: list[np.ndarray], *, registers: str = "") -> list:
    """Run in three modes and compare them; give the outputs of the converged one.

    Args:
        text: instruction(s) with $-operands, outputs first.
        outputs: dtypes (np.bool_ for predicates).
        inputs: arrays of 32 lanes.
        registers: extra declarations.
    """

    def name(dtype: Any) -> str:
        dtype = np.dtype(dtype)
        return "pred" if dtype == np.bool_ else f"u{dtype.itemsize * 8}"

    kinds_out = [name(d) for d in outputs]
    kinds_in = [name(a.dtype) for a in inputs]
    results = {}
    for mode in ("plain", "guard", "branch"):
        ptx = program(text, kinds_in, kinds_out, mode, registers)
        outs = [np.zeros(LANES, np.uint32 if np.dtype(d) == np.bool_ else d) for d in outputs]
        ins = [
            a.astype(np.uint32) if a.dtype == np.bool_ else np.ascontiguousarray(a) for a in inputs
        ]
        report = launch(ptx, "k", grid=1, block=LANES, args=[*outs, *ins])
        assert report.ok, report
        results[mode] = outs
    odd = np.arange(LANES) % 2 == 1
    for mode in ("guard", "branch"):
        for plain, masked in zip(results["plain"], results[mode], strict=True):
            assert masked[odd].tobytes() == plain[odd].tobytes(), (text, mode)
            assert not np.frombuffer(masked[~odd].tobytes(), np.uint8).any(), (text, mode)
    return [
        o.astype(bool) if np.dtype(d) == np.bool_ else o
        for o, d in zip(results["plain"], outputs, strict=True)
    ]
