"""A Python function to PTX and a cubin, for any target and on any machine."""

from __future__ import annotations

import dataclasses
import functools
import re
import types as pytypes
from dataclasses import dataclass, field
from typing import Any

from nbtc import arch as arch_module
from nbtc import cache, fingerprint, notes, numba_compat, ptxas, sass, tools
from nbtc.arch import Arch
from nbtc.diagnostics import readable
from nbtc.errors import CompileError, InstructionError, LayoutError
from nbtc.notes import Note, NotesMode
from nbtc.numba_compat import KernelBounds
from nbtc.ptxas import Resources
from nbtc.source_lines import LineTable, PythonLine, chain_text

MAX_SMEM_BYTES = 227 * 1024
"""Most shared memory, static and dynamic, of one CTA on every supported target."""

_ALLOCATION = re.compile(r"^\s*tcgen05\.alloc\.\S+ \[[^]]*\], ([%\w]+);", re.MULTILINE)

REGISTER_FILE = 64 * 1024
"""Registers of one multiprocessor."""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Options of a kernel that shape its code.

    Attributes:
        bounds: performance directives of the entry.
        dynamic_smem_bytes: dynamic shared memory that the kernel's layout asks for.
        lineinfo: keep Python lines in PTX and cubin. Costs no speed.
        fastmath: reassociate, contract, use approximate division, flush subnormals.
    """

    bounds: KernelBounds = field(default_factory=KernelBounds)
    dynamic_smem_bytes: int = 0
    lineinfo: bool = True
    fastmath: bool = False


@dataclass(frozen=True)
class Compiled:
    """A kernel compiled for one target and one set of argument types.

    Attributes:
        ptx: the PTX text; the emulator runs exactly this.
        cubin: machine code, assembled from ``ptx`` by ptxas as a whole program.
        arch: target, ``"sm_90a"``.
        entry: name of the kernel in ``ptx`` and ``cubin``.
        resources: registers, spills, shared memory and barriers.
        notes: what ptxas noted, with Python lines.
        argument_types: Numba type of each Python argument.
        from_cache: whether it was loaded instead of compiled.
    """

    ptx: str
    cubin: bytes
    arch: str
    entry: str
    resources: Resources
    notes: tuple[Note, ...]
    argument_types: tuple[Any, ...]
    from_cache: bool = False

    def sass(self, *, lines: bool = False) -> str:
        """Return the machine code as nvdisasm writes it.

        Args:
            lines: put the source line before the instructions that come from it. ptxas gives HGMMA
                no line of its own: it stands under that of the instruction before it.
        """
        return sass.disassemble(self.cubin, lines=lines)

    def count(self, opcode: str) -> int:
        """Return how many machine instructions have an opcode: ``"HGMMA"``, ``"MEMBAR"``."""
        return sass.count(self._plain_sass, opcode)

    @functools.cached_property
    def tmem_columns(self) -> int:
        """Columns of tensor memory that the kernel allocates, of 512 (sm_100 only).

        Raises:
            CompileError: a column count is not a constant.
        """
        total = 0
        for count in _ALLOCATION.findall(self.ptx):
            move = re.search(rf"mov\.[bu]32 \s*{re.escape(count)}, (\d+);", self.ptx)
            if not count.isdigit() and move is None:
                raise CompileError(f"{self.entry}: tcgen05.alloc of {count} columns, a variable")
            total += int(count if move is None else move[1])
        return total

    @functools.cached_property
    def _plain_sass(self) -> str:
        return self.sass()

    def __repr__(self) -> str:
        r = self.resources
        return (
            f"<Compiled {self.entry} for {self.arch}: {r.registers} registers, {r.spill_bytes} B "
            f"spilled, {r.static_smem_bytes}+{r.dynamic_smem_bytes} B shared, "
            f"{len(self.notes)} notes>"
        )


def entry_name(function: pytypes.FunctionType) -> str:
    """Return the name that a kernel function gets in PTX."""
    name = re.sub(r"\W", "_", function.__name__, flags=re.ASCII)
    # What PTX keeps for itself, is no PTX name, or names a function of the system.
    return f"_{name}" if name in {"WARP_SZ", "_", *_SYSTEM_CALLS} else name


def compile_kernel(
    function: pytypes.FunctionType,
    argument_types: tuple[Any, ...],
    arch: str | Arch,
    options: CompileOptions,
    *,
    notes_mode: NotesMode = "error",
) -> Compiled:
    """Compile a kernel, or take it from the disk cache.

    Args:
        function: the kernel as a plain Python function.
        argument_types: Numba types, see :func:`nbtc.argument_types.argument_type`.
        arch: target.
        options: what shapes the code.
        notes_mode: what serious notes of ptxas do.

    Raises:
        ArchError: the target is unknown, or an instruction of the kernel does not exist there.
        InstructionError: an operand or modifier is not legal.
        CompileError: anything else that Numba, libNVVM or ptxas refuses, or a serious note.
        VersionError: ptxas is too old for the PTX of libNVVM.
    """
    target = arch_module.parse(arch)
    check_register_bounds(options.bounds)
    with fingerprint.session() as hasher:
        key, stable = key_of(hasher, function, argument_types, target, options)
        found = cache.load(key) if stable else None
        if found is None:
            made = _compile(function, argument_types, target, options)
            if stable:
                cache.store(key, to_entry(made))
        else:
            made = from_entry(found, argument_types)
    check_shared(made.resources, made.arch)
    notes.report(made.notes, function.__qualname__, notes_mode)
    return made


def key_of(
    hasher: fingerprint.Hasher,
    function: pytypes.FunctionType,
    argument_types: tuple[Any, ...],
    target: Arch,
    options: CompileOptions,
) -> tuple[str, bool]:
    """Return the hash of all that shapes a kernel, and whether it may outlive the process."""
    ptxas_version = tools.find("ptxas").version
    parts = [
        target.name,
        repr(options),
        f"ptxas={ptxas_version}",
        *map(fingerprint.type_token, argument_types),
        hasher.function(function),
    ]
    return cache.key_of(parts), hasher.stable


def _compile(
    function: pytypes.FunctionType,
    argument_types: tuple[Any, ...],
    target: Arch,
    options: CompileOptions,
) -> Compiled:
    count = function.__code__.co_argcount + function.__code__.co_kwonlyargcount
    if count != len(argument_types):
        raise CompileError(
            f"kernel {function.__qualname__} takes {count} arguments, {len(argument_types)} types "
            "were given"
        )
    code = numba_compat.CodeOptions.for_arch(
        target, lineinfo=options.lineinfo, fastmath=options.fastmath
    )
    entry = entry_name(function)
    with readable(function, argument_types):
        opened = numba_compat.open_keywords(function)
        ptx = numba_compat.kernel_to_ptx(
            opened, argument_types, target, code, bounds=options.bounds, entry=entry
        )
        _check_external(ptx)
        _check_cta_group(ptx)
        _check_dynamic_shared(ptx, options.dynamic_smem_bytes)
        assembly = ptxas.assemble(ptx, target, lineinfo=options.lineinfo)
    resources = ptxas.parse_resources(assembly.log, entry, options.dynamic_smem_bytes)
    found = notes.parse(assembly.log, ptx)
    if notes.needs_sass(ptx, assembly.cubin):
        found += notes.count_against_sass(
            ptx, sass.disassemble(assembly.cubin, lines=options.lineinfo), found
        )
    return Compiled(
        ptx, assembly.cubin, target.name, entry, resources, tuple(found), argument_types
    )


_EXTERN = re.compile(r"\.extern\s+\.func\s*(?:\([^)]*\)\s*)?([\w$]+)")
_SYSTEM_CALLS = {"vprintf", "malloc", "free", "__assertfail", "cudaDeviceSynchronize"}


_DYNAMIC = re.compile(r"^\s*\.extern\s+\.shared\b.*?([\w$]+)\[\];", re.MULTILINE)
_LAYOUT_SYMBOL = re.compile(r"nbtc_dynamic_shared_(\d+)")


def _check_dynamic_shared(ptx: str, given: int) -> None:
    """Raise LayoutError unless the kernel has the one layout that its code uses."""
    symbols = set(_DYNAMIC.findall(ptx))
    sizes = sorted(int(m[1]) for m in map(_LAYOUT_SYMBOL.fullmatch, symbols) if m)
    if not sizes:
        return
    if len(symbols) > 1:
        others = (
            "another shared.Layout" if len(sizes) == len(symbols) else "cuda.shared.array(0, ...)"
        )
        raise LayoutError(
            f"a shared.Layout of {sizes[-1]} B and {others} in one kernel are the same memory: all "
            "dynamic shared memory starts at one address. Put every piece into one layout"
        )
    if given != sizes[0]:
        raise LayoutError(
            f"the kernel uses a shared.Layout of {sizes[0]} B, but has {given} B of dynamic shared "
            "memory: give the layout to the decorator, @nbtc.jit(shared=layout)"
        )


_CTA_GROUP = re.compile(r"\btcgen05\.(\w+)[\w.:]*\.cta_group::([12])")


def _check_cta_group(ptx: str) -> None:
    """Raise InstructionError if tcgen05 instructions of one kernel name both group sizes."""
    first: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(ptx.splitlines(), 1):
        for name, group in _CTA_GROUP.findall(line):
            first.setdefault(group, (name, number))
    if len(first) < 2:
        return
    table = LineTable(ptx)
    (one, at), (two, other) = sorted(first.values(), key=lambda found: found[1])
    groups = {found[1]: group for group, found in first.items()}
    raise InstructionError(
        f"{chain_text(table.at(other))}: tcgen05.{two} has cta_group={groups[other]}, but "
        f"tcgen05.{one} at {chain_text(table.at(at))} has cta_group={groups[at]}; all tcgen05 "
        "instructions of a kernel, its helpers included, must name one group size"
    )


def _check_external(ptx: str) -> None:
    missing = sorted(set(_EXTERN.findall(ptx)) - _SYSTEM_CALLS)
    if missing:
        raise CompileError(
            f"the kernel calls {', '.join(missing)}, external functions whose code is not in "
            "its PTX. numba-cuda's own float16, bfloat16 and float8 operators and conversions are "
            "such: use array elements (they read as float32) or "
            "packed arithmetic of nbtc.intrinsics"
        )


def check_register_bounds(bounds: KernelBounds) -> None:
    """Raise CompileError if a register cap and a block size exclude each other."""
    if bounds.max_registers is None or bounds.max_threads is None:
        return
    check_registers(bounds.max_registers, bounds.max_threads)


def check_registers(registers: int, threads: int) -> None:
    """Raise CompileError unless a block of ``threads`` with ``registers`` each fits the chip."""
    total = registers * threads
    if total <= REGISTER_FILE:
        return
    most = min(REGISTER_FILE // threads // 8 * 8, 255)
    raise CompileError(
        f"{registers} regs x {threads} = {total} > {REGISTER_FILE}: "
        f"launch_bounds=({threads}, 1) or max_registers={most}"
    )


def check_shared(resources: Resources, arch: str) -> None:
    """Raise LayoutError if static and dynamic shared memory together exceed the chip's maximum."""
    static, dynamic = resources.static_smem_bytes, resources.dynamic_smem_bytes
    total = static + dynamic
    if total > MAX_SMEM_BYTES:
        raise LayoutError(
            f"{static} B static + {dynamic} B dynamic = {total} B of shared memory > "
            f"{MAX_SMEM_BYTES} B opt-in maximum of {arch} (227 KiB)"
        )


def to_entry(made: Compiled) -> cache.Entry:
    """Return what a file keeps of a kernel."""
    meta = {
        "arch": made.arch,
        "entry": made.entry,
        "resources": dataclasses.asdict(made.resources),
        "notes": [
            [n.code, n.text, [[line.file, line.line] for line in n.lines]] for n in made.notes
        ],
    }
    return cache.Entry(meta, made.ptx, made.cubin)


def from_entry(entry: cache.Entry, argument_types: tuple[Any, ...]) -> Compiled:
    """Return the kernel that a file keeps."""
    meta = entry.meta
    found = tuple(
        Note(code, text, tuple(PythonLine(file, line) for file, line in lines))
        for code, text, lines in meta["notes"]
    )
    return Compiled(
        entry.ptx, entry.cubin, meta["arch"], meta["entry"], Resources(**meta["resources"]), found,
        argument_types, from_cache=True,
    )  # fmt: skip
