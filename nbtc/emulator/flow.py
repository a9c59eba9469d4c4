"""Basic blocks and immediate post-dominators of a PTX function."""

from __future__ import annotations

from typing import Any

from ..errors import EmulatorError
from .program import Block, Function, Instruction, Reg, Symbol, writes_operand

TERMINATORS = {"bra", "brx", "ret", "exit", "trap"}


def build_blocks(function: Function, items: list[Any]) -> None:
    """Split ``items`` (instructions and (name, id) labels) into blocks of ``function``.

    Branch operands get the block number in ``Symbol.target`` (tables: lists of block numbers).
    """
    blocks: list[Block] = [Block(0)]
    where: dict[int, int] = {}
    targets = _targets(items)
    ended = False
    for item in items:
        if isinstance(item, tuple):
            if item[1] not in targets:
                continue
            if blocks[-1].instructions:
                blocks.append(Block(len(blocks)))
            ended = False
            blocks[-1].labels.append(item[0])
            where[item[1]] = len(blocks) - 1
            continue
        if ended:
            blocks.append(Block(len(blocks)))
            ended = False
        blocks[-1].instructions.append(item)
        if item.parts[0] in TERMINATORS:
            ended = True
    resolved: set[int] = set()
    for block in blocks:
        for ins in block.instructions:
            for operand in ins.operands:
                if not isinstance(operand, Symbol) or ins.parts[0] not in ("bra", "brx"):
                    continue
                if isinstance(operand.target, list):
                    if id(operand.target) not in resolved:
                        operand.target[:] = [where[i] for i in operand.target]
                        resolved.add(id(operand.target))
                else:
                    operand.target = where[operand.target]
    for block in blocks:
        block.successors = _successors(block, len(blocks), function)
    function.blocks = blocks
    _post_dominators(blocks)
    for block in blocks:
        block.exit_only = (
            function.entry
            and len(block.instructions) == 1
            and block.instructions[0].parts[0] in ("ret", "exit")
            and block.instructions[0].guard is None
        )


def _targets(items: list[Any]) -> set[int]:
    """Labels that some branch names."""
    out: set[int] = set()
    for item in items:
        if isinstance(item, Instruction) and item.parts[0] in ("bra", "brx"):
            for operand in item.operands:
                if isinstance(operand, Symbol):
                    out.update(
                        operand.target if isinstance(operand.target, list) else [operand.target]
                    )
    return out


def _successors(block: Block, count: int, function: Function) -> list[int]:
    following = block.number + 1
    last = block.instructions[-1] if block.instructions else None
    out: list[int] = []
    if last is not None and last.parts[0] in TERMINATORS:
        kind = last.parts[0]
        if kind == "bra":
            target = last.operands[0]
            assert isinstance(target, Symbol)
            out.append(target.target)
        elif kind == "brx":
            table = last.operands[1]
            assert isinstance(table, Symbol)
            out.extend(dict.fromkeys(table.target))
        if last.guard is None:
            return out
    if following < count:
        if following not in out:
            out.append(following)
    elif last is None or last.parts[0] not in ("ret", "exit", "trap") or last.guard is not None:
        if last is not None and last.guard is None:
            raise EmulatorError(f"function {function.name} runs past its end")
    return out


def _post_dominators(blocks: list[Block]) -> None:
    """Fill ``ipdom`` by the iterative algorithm on the reversed graph (-1: virtual exit)."""
    count = len(blocks)
    exit_node = count
    forward: list[list[int]] = []
    for block in blocks:
        succ = list(block.successors)
        last = block.instructions[-1] if block.instructions else None
        ends = last is not None and last.parts[0] in ("ret", "exit", "trap")
        if ends or not succ:
            succ.append(exit_node)
        forward.append(succ)
    backward: list[list[int]] = [[] for _ in range(count + 1)]
    for number, succ in enumerate(forward):
        for target in succ:
            backward[target].append(number)
    order: list[int] = []
    seen = [False] * (count + 1)
    stack: list[tuple[int, int]] = [(exit_node, 0)]
    seen[exit_node] = True
    while stack:
        node, i = stack[-1]
        if i < len(backward[node]):
            stack[-1] = (node, i + 1)
            nxt = backward[node][i]
            if not seen[nxt]:
                seen[nxt] = True
                stack.append((nxt, 0))
        else:
            order.append(node)
            stack.pop()
    rank = {node: i for i, node in enumerate(order)}
    idom: dict[int, int] = {exit_node: exit_node}
    changed = True
    while changed:
        changed = False
        for node in reversed(order[:-1]):
            best = -1
            for succ in forward[node]:
                if succ not in idom:
                    continue
                if best < 0:
                    best = succ
                    continue
                a, b = best, succ
                while a != b:
                    while rank[a] < rank[b]:
                        a = idom[a]
                    while rank[b] < rank[a]:
                        b = idom[b]
                best = a
            if best >= 0 and idom.get(node) != best:
                idom[node] = best
                changed = True
    for block in blocks:
        parent = idom.get(block.number, exit_node)
        block.ipdom = -1 if parent == exit_node else parent


def undefined_reads(function: Function) -> dict[int, str]:
    """Find reads of registers that no path from the entry has written.

    Returns:
        ``id(instruction) -> register name``. Accumulators of matrix instructions are left to their
        own checks.
    """
    count = len(function.blocks)
    written: list[int] = []
    for block in function.blocks:
        bits = 0
        for ins in block.instructions:
            bits |= _written(ins)
        written.append(bits)
    before: list[int] = [0] * count
    before[0] = _parameters(function)
    work = list(range(count))
    while work:
        number = work.pop()
        after = before[number] | written[number]
        for target in function.blocks[number].successors:
            if after & ~before[target]:
                before[target] |= after
                work.append(target)
    out: dict[int, str] = {}
    for block in function.blocks:
        known = before[block.number]
        for ins in block.instructions:
            if ins.parts[0] not in ("wgmma", "tcgen05", "mma"):
                for reg in _read(ins):
                    if not known >> _key(reg) & 1:
                        out[id(ins)] = reg.text
            known |= _written(ins)
    return out


_BANK = {1: 0, 8: 1, 16: 2, 32: 3, 64: 4, 128: 5}


def _key(reg: Reg) -> int:
    return reg.index * 6 + _BANK[reg.bits]


def _written(ins: Instruction) -> int:
    bits = 0
    for position, operand in enumerate(ins.operands):
        if writes_operand(ins, position):
            for reg in operand.registers():
                bits |= 1 << _key(reg)
    return bits


def _read(ins: Instruction) -> list[Reg]:
    out = list(ins.guard.registers()) if ins.guard is not None else []
    for position, operand in enumerate(ins.operands):
        if not writes_operand(ins, position):
            out.extend(operand.registers())
    return out


def _parameters(function: Function) -> int:
    names = {p.name for p in function.params if p.space == "reg"}
    return sum(
        1 << (index * 6 + _BANK[bits])
        for (bits, index), name in function.register_names.items()
        if name in names
    )


__all__ = ["TERMINATORS", "build_blocks", "undefined_reads"]
