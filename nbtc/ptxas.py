"""PTX text to a cubin by ptxas, as a whole program, and what ptxas says about it.

Never through nvJitLink, cuda.core's Linker or numba-cuda's linker: they compile PTX relocatable,
which drops ``setmaxnreg`` and serialises wgmma.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from nbtc import tools
from nbtc.arch import Arch
from nbtc.errors import CompileError, VersionError
from nbtc.source_lines import LineTable, chain_text


@dataclass(frozen=True, slots=True)
class Resources:
    """What a kernel needs of the hardware.

    Attributes:
        registers: registers per thread at entry.
        spill_bytes: bytes of spill stores and loads per thread.
        stack_bytes: bytes of stack frame per thread.
        static_smem_bytes: static shared memory per CTA.
        dynamic_smem_bytes: dynamic shared memory per CTA that the kernel's layout asks for.
        barriers: named barriers used, counting barrier 0.
    """

    registers: int
    spill_bytes: int
    stack_bytes: int
    static_smem_bytes: int
    dynamic_smem_bytes: int
    barriers: int


@dataclass(frozen=True, slots=True)
class Assembly:
    """Result of one run of ptxas."""

    cubin: bytes
    log: str


def ptx_version(ptx: str) -> tuple[int, int]:
    """Return the PTX ISA version that a module is written in."""
    match = re.search(r"^\s*\.version\s+(\d+)\.(\d+)", ptx, re.MULTILINE)
    if match is None:
        raise CompileError("the PTX has no .version directive")
    return int(match[1]), int(match[2])


def check_version(ptx: str, ptxas: tools.Tool) -> None:
    """Raise VersionError if ``ptxas`` is too old to read ``ptx``."""
    need = ptx_version(ptx)
    if need <= ptxas.isa:
        return
    release = re.search(r"release (\d+\.\d+)", ptx)
    writer = f"NVVM {release[1]}" if release else "the code generator"
    cuda = f"{need[0] + 4}.{need[1]}" if need[0] >= 9 else "13.0"
    raise VersionError(
        f"{writer} writes PTX {need[0]}.{need[1]}, ptxas {ptxas.release[0]}.{ptxas.release[1]} "
        f"({ptxas.path}) reads {ptxas.isa[0]}.{ptxas.isa[1]}: install nvidia-cuda-nvcc>={cuda} or "
        f"pin nvidia-nvvm to {ptxas.release[0]}.{ptxas.release[1]}"
    )


def assemble(ptx: str, arch: Arch, *, lineinfo: bool = True) -> Assembly:
    """Assemble a module for one target.

    Raises:
        VersionError: ptxas does not read this PTX version.
        CompileError: ptxas refused the module; the message has its words and the Python line.
    """
    ptxas = tools.find("ptxas")
    check_version(ptx, ptxas)
    with tempfile.TemporaryDirectory(prefix="nbtc-") as folder:
        source, output = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        command = [ptxas.path, f"-arch={arch.name}", "-v", str(source), "-o", str(output)]
        if lineinfo:
            command.insert(3, "-lineinfo")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        log = done.stderr + done.stdout
        if done.returncode != 0 or not output.exists():
            raise CompileError(_refusal(ptx, arch, log))
        return Assembly(output.read_bytes(), log)


_SHARED = re.compile(r"uses too much shared data \((0x[0-9a-f]+) bytes, (0x[0-9a-f]+) max\)")
_LINE = re.compile(r"line (\d+)[;)]? *(?:error|fatal)[^:]*: *(.*)")


def _refusal(ptx: str, arch: Arch, log: str) -> str:
    shared = _SHARED.search(log)
    if shared is not None:
        used, limit = int(shared[1], 16), int(shared[2], 16)
        wider = "" if arch.suffix == "a" else f" or {arch.name.rstrip('f')}a"
        return f"static shared {used} B > {limit} B for {arch.name}; use dynamic{wider}"
    table = LineTable(ptx)
    lines = ptx.splitlines()
    messages = []
    for match in _LINE.finditer(log):
        number = int(match[1])
        text = lines[number - 1].strip() if number <= len(lines) else ""
        message = f"{chain_text(table.at(number))}: {match[2].strip()}  [{text}]"
        if message not in messages:
            messages.append(message)
    if not messages:
        kept = [line for line in log.splitlines() if "error" in line or "fatal" in line]
        messages = kept or [log.strip() or "no message"]
    return f"ptxas refused the kernel for {arch.name}: " + "\n".join(messages[:10])


_USED = re.compile(r"Used (\d+) registers(.*)")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def parse_resources(log: str, entry: str, dynamic_smem_bytes: int) -> Resources:
    """Read the figures of ``entry`` from what ``ptxas -v`` printed."""
    start = log.find(f"Compiling entry function '{entry}'")
    properties = log.find(f"Function properties for {entry}\n", max(start, 0))
    frame = _FRAME.search(log, max(properties, 0))
    used = _USED.search(log, max(start, 0))
    if start < 0 or frame is None or used is None:
        raise CompileError(f"ptxas printed no figures for entry {entry!r}:\n{log}")
    smem = re.search(r"(\d+) bytes smem", used[2])
    barriers = re.search(r"used (\d+) barriers", used[2])
    return Resources(
        registers=int(used[1]),
        spill_bytes=int(frame[2]) + int(frame[3]),
        stack_bytes=int(frame[1]),
        static_smem_bytes=int(smem[1]) if smem else 0,
        dynamic_smem_bytes=dynamic_smem_bytes,
        barriers=int(barriers[1]) if barriers else 0,
    )
