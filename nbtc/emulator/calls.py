"""Function calls: entering, passing values, returning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .builtins import call_builtin
from .machine import LANES
from .program import Operand, Reg, Symbol
from .warp import ActiveFrame, ActivePath, Join

if TYPE_CHECKING:
    from .codegen import Step


class Calls:
    """The call part of the runner."""

    machine: Any

    def call(self, path: ActivePath, step: Step) -> bool:
        """Enter a function; False when a built-in did the work."""
        ins = step.instructions[0]
        w: Any = path.warp
        frame: Any = path.frame
        program = frame.code.program
        mask = path.mask
        if ins.guard is not None:
            mask = mask & w.predicate(ins.guard)
            if not mask.any():
                return False
        target = ins.operands[1]
        if isinstance(target, Reg):
            targets = w.read(target)
            first = targets[int(np.argmax(mask))]
            others = mask & (targets != first)
            if others.any():
                mask = self._split_call(path, mask, others)
            name: Any = program.function_name(int(first))
            if name is None:
                self.machine.fatal(
                    "illegal-instruction",
                    f"call of address {int(first):#x}, which is no function",
                    ins=ins,
                    warp=w,
                )
        else:
            name = target.text
        function = program.module.functions.get(name)
        if function is None or not function.defined:
            w.active = mask
            call_builtin(w, ins, str(name))
            return False
        code = program.code(function)
        base = w.push_local(function)
        callee = ActiveFrame(code, frame, ins, base)
        arguments = ins.operands[2].items  # type: ignore[attr-defined]
        for variable, operand in zip(function.params, arguments, strict=True):
            self.pass_value(w, frame, operand, callee, variable)
        callee.return_to = (path.block, path.step + 1)
        if mask is not path.mask and mask.tobytes() != path.mask.tobytes():
            join = Join(path.block, path.step + 1, frame, path.mask, path.join)
            join.have |= path.mask & ~mask
            path.join = join
            path.mask = mask
        path.frame = callee
        path.block = path.step = 0
        w.frame = callee
        return True

    @staticmethod
    def _split_call(path: ActivePath, mask: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Let the lanes with other targets call by themselves; return the lanes that remain."""
        join = Join(path.block, path.step + 1, path.frame, path.mask, path.join)
        join.have |= path.mask & ~mask
        w: Any = path.warp
        fresh = ActivePath(w, others.copy(), path.frame, path.block, path.step, join)
        w.paths.insert(w.paths.index(path) + 1, fresh)
        path.join = join
        path.mask = mask & ~others
        return path.mask

    def pass_value(self, w: Any, frame: Any, operand: Operand, callee: Any, variable: Any) -> None:
        """Copy one argument into the callee's parameter area or register."""
        if isinstance(operand, Symbol) and getattr(operand.target, "space", "") == "param":
            start = operand.target.offset
            octets = frame.params[:, start : start + variable.size]
        else:
            kind = f"u{variable.size}"
            row = w.read(operand, kind)
            octets = np.ascontiguousarray(row).view(np.uint8).reshape(LANES, variable.size)
        if variable.space == "reg":
            reg_bits, index = callee.code.program.register_of(callee.function, variable)
            callee.bank[reg_bits][index] = (
                np.ascontiguousarray(octets).view(f"u{variable.size}").reshape(-1)
            )
        else:
            callee.params[:, variable.offset : variable.offset + variable.size] = octets

    def leave(self, path: ActivePath) -> None:
        """Return from a function: copy results, go on after the call."""
        w: Any = path.warp
        callee: Any = path.frame
        frame = callee.caller
        ins = callee.caller_ins
        returns = ins.operands[0].items
        lanes = path.mask
        for variable, operand in zip(callee.function.returns, returns, strict=True):
            if variable.space == "reg":
                bits, index = callee.code.program.register_of(callee.function, variable)
                octets = (
                    np.ascontiguousarray(callee.bank[bits][index]).view(np.uint8).reshape(LANES, -1)
                )
            else:
                octets = callee.params[:, variable.offset : variable.offset + variable.size]
            if isinstance(operand, Symbol):
                start = operand.target.offset
                frame.params[lanes, start : start + variable.size] = octets[lanes]
            elif isinstance(operand, Reg):
                row = frame.bank[operand.bits][operand.index]
                values = np.ascontiguousarray(octets).view(f"u{variable.size}").reshape(-1)
                np.copyto(row, values, where=lanes)
        path.frame = frame
        path.block, path.step = callee.return_to
        w.frame = frame
        others = any(p.frame is not frame and p.frame is not callee for p in w.paths)
        if not others:
            w.local_top = max(callee.local_base, 16)
