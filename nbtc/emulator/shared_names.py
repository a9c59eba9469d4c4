"""Shared addresses as text: pieces of the Python layout, variables of the PTX, plain numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbtc.layout.shared_pieces import SharedPiece

__all__ = ["address_text", "partner_name", "piece_at", "place_of", "shared_name", "span_text"]

_SMALL = 1024  # larger variables are dynamic memory of compilers, which says nothing


def piece_at(machine: Any, offset: int) -> tuple[SharedPiece, int] | None:
    """Return the piece that a byte of a CTA lies in, and its offset in dynamic memory."""
    start = machine.dynamic_start
    if start is None:
        return None
    inside = offset - start
    for piece in machine.pieces:
        if piece.offset <= inside < piece.end:
            return piece, inside
    return None


def shared_name(machine: Any, offset: int) -> str | None:
    """Return the name of a byte offset in a CTA, such as ``a[1]+0x400``; None if it has none."""
    found = piece_at(machine, offset)
    if found is not None:
        return found[0].text(found[1])
    variables = getattr(machine.module, "variables", {})
    for symbol, start in machine.symbols.items():
        variable = variables.get(symbol)
        if variable is None or variable.size > _SMALL or not variable.size:
            continue
        if start <= offset < start + variable.size:
            return f"{symbol}[{(offset - start) // 8}]" if variable.size > 8 else symbol
    start = machine.dynamic_start
    if start is not None and machine.pieces:
        before = [p for p in machine.pieces if start + p.end <= offset]
        if before:
            last = max(before, key=lambda piece: piece.end)
            return f"{offset - start - last.end} B behind the end of {last.name}"
    return None


def address_text(machine: Any, offset: int) -> str:
    """Return words for a byte offset in a CTA: ``full[0] (smem+0x40)``."""
    name, plain = shared_name(machine, offset), f"smem+{offset:#x}"
    return f"{name} ({plain})" if name else plain


def span_text(machine: Any, low: int, high: int) -> str:
    """Return words for a byte range in a CTA: ``a[1] [0x2000, 0x4000)``."""
    plain = f"[{low:#x}, {high:#x})"
    first = piece_at(machine, low)
    if first is None:
        return plain
    last = piece_at(machine, high - 1)
    name = first[0].text(first[1])
    if last is not None and last[0].stage_name(last[1]) != first[0].stage_name(first[1]):
        name += f" to {last[0].stage_name(last[1])}"
    return f"{name} {plain}"


def place_of(machine: Any, space: str, target: Any, offsets: Any) -> str:
    """Return words for what lanes access: the array, or the stage that all of them are in."""
    if space != "shared":
        return f"of {target.name} "
    low, high = piece_at(machine, int(offsets.min())), piece_at(machine, int(offsets.max()))
    if low is None or high is None or low[0] is not high[0]:
        return ""
    name = low[0].stage_name(low[1])
    return f"{name if name == high[0].stage_name(high[1]) else low[0].name} "


def partner_name(machine: Any, offset: int) -> str | None:
    """Return the name of the barrier of the same stage on which consumers arrive, if it tells.

    Barriers of a ring come in pairs: ``full[i]``, at ``offset``, and ``empty[i]``.
    """
    found = piece_at(machine, offset)
    if found is None or found[0].stages is None:
        return None
    own, inside = found
    others = [
        p for p in machine.pieces
        if p is not own and (p.stages, p.stage_bytes) == (own.stages, 8) and p.swizzle is None
    ]  # fmt: skip
    named = [p for p in others if "empty" in p.name] or others
    return f"{named[0].name}[{own.stage_of(inside)[0]}]" if len(named) == 1 else None
