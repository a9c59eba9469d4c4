"""Instructions in compiled kernels: one call is one instruction, with the modifiers asked for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from numba import cuda
from numba.cuda import types
from numba.cuda.compiler import compile_cuda

import nbtc
from nbtc import arch as arch_module
from nbtc import tools
from nbtc.errors import ArchError, InstructionError
from nbtc.intrinsics import address, cluster, fence, mbarrier, special, sync, tma
from nbtc.ptx import conformance, target
from nbtc.ptx.kinds import Kind, Regs
from nbtc.ptx.spec import Instruction, Variant
from nbtc.ptx.types_numba import TENSOR_MAP
from nbtc.reference import instructions, modules

CC = {"sm_90a": (9, 0, "a"), "sm_100a": (10, 0, "a"), "sm_103a": (10, 3, "a")}
EXPRESSIONS = {
    "u16": "types.uint16(n)",
    "u32": "n",
    "s32": "n",
    "u64": "w",
    "s64": "w",
    "f32": "f",
    "f64": "d",
    "pred": "n > 3",
    "shared": "shared",
    "cluster": "remote",
    "tmem": "tmem",
    "global": "out",
    "generic": "out",
    "tensor_map": "tensor_map",
    "descriptor_sm90": "descriptor90",
    "descriptor_sm100": "descriptor100",
}
HEAD = """
def kernel(out, n, w, f, d, tensor_map):
    shared = cuda.shared.array(64, types.uint64)
    remote = address.cluster(n)
    tmem = address.tmem(n)
    descriptor90 = address.descriptor_sm90(w)
    descriptor100 = address.descriptor_sm100(w)
"""
SIGNATURE = types.void(
    types.uint64[:], types.uint32, types.uint64, types.float32, types.float64, TENSOR_MAP
)


def compile_ptx(kernel: Any, signature: Any = SIGNATURE, arch: str = "sm_90a") -> str:
    with target.compiling_for(arch):
        text, _ = cuda.compile_ptx(kernel, signature, cc=CC[arch])
    return text


def asm_blocks(ptx: str) -> list[str]:
    blocks = re.findall(r"// begin inline asm\n(.*?)// end inline asm", ptx, re.DOTALL)
    # libNVVM takes further lines for further lines of the Python file.
    assert all(len(b.strip().splitlines()) == 1 for b in blocks)
    return [" ".join(b.split()) for b in blocks]


def _shape(text: str) -> str:
    """Text with every register, of whatever name, as ``%``, and without predicate bridges."""
    bridge = r"\.reg \.pred %q_\w+; setp\.ne\.b32 %q_\w+, %r\d+, 0; "
    text = re.sub(rf"^\{{ (?:{bridge})+(.*) \}}$", r"\1", text)
    text = re.sub(r"%q_\w+", "%", text)
    text = re.sub(r"%(p|h|rs|r|l|rd|f|fd|d)\d+", "%", text)
    return re.sub(r"\s+", " ", text)


def _expression(kind: Kind | Regs, variant: Variant, name: str) -> str:
    if isinstance(kind, Kind):
        return EXPRESSIONS[kind.name]
    one, count = kind.resolve(variant)
    member = EXPRESSIONS[one.name if one else "f32"]
    if kind.is_scalar(variant):
        return member
    length = count if count is not None else variant.count(name)
    return "(" + f"{member}, " * length + ")"


def _call(instruction: Instruction, variant: Variant) -> str:
    parts = [
        f"{o.name}={_expression(o.kind, variant, o.name)}"
        for o in instruction.operands
        if not o.optional or variant.has(o.name)
    ]
    parts += [f"{m.name}={variant[m.name]!r}" for m in instruction.modifiers]
    return f"{instruction.name}({', '.join(parts)})"


def _supported(instruction: Instruction, variant: Variant) -> str:
    need = instruction.arch(variant)
    return next(t for t in CC if arch_module.satisfies(t, need))


def _small(instruction: Instruction, variant: Variant) -> bool:
    """Numba types long tuple literals slowly."""
    regs = [o.kind for o in instruction.operands if isinstance(o.kind, Regs)]
    return all((r.resolve(variant)[1] or 0) <= 16 for r in regs)


def _uses() -> dict[tuple[str, str], list[tuple[Instruction, Variant]]]:
    """First and last legal variant of every instruction that must stay, by family and target."""
    found: dict[tuple[str, str], list[tuple[Instruction, Variant]]] = {}
    for name, instruction in instructions().items():
        if "pure" in instruction.effects:
            continue
        variants = [v for v in instruction.variants() if _small(instruction, v)]
        for variant in [variants[0], variants[-1]] if len(variants) > 1 else variants:
            key = (name.split(".")[0], _supported(instruction, variant))
            found.setdefault(key, []).append((instruction, variant))
    return found


USES = _uses()


@pytest.mark.parametrize("key", USES, ids=["-".join(k) for k in USES])
def test_one_call_is_one_instruction(key: tuple[str, str]) -> None:
    _, arch = key
    body = "".join(f"    {_call(i, v)}\n" for i, v in USES[key])
    scope = {"cuda": cuda, "types": types, "address": address, **modules()}
    exec(HEAD + body, scope)
    ptx = compile_ptx(scope["kernel"], arch=arch)
    got = [_shape(b) for b in asm_blocks(ptx)]
    wanted = [_shape(conformance.render(i, v)) for i, v in USES[key]]
    assert got == wanted


def test_a_pure_read_that_nobody_uses_is_gone_and_a_clock_is_not() -> None:
    def kernel(out: Any) -> None:
        special.laneid()
        special.clock()

    blocks = asm_blocks(compile_ptx(kernel, types.void(types.uint32[:])))
    assert [b.split(",")[1].strip() for b in blocks] == ["%clock;"]


def test_clocks_are_read_twice_and_ids_once() -> None:
    def kernel(out: Any) -> None:
        start = special.clock()
        lane = special.laneid()
        out[lane] = special.clock() - start + special.laneid()

    for arch in ("sm_90a", "sm_100a"):
        blocks = asm_blocks(compile_ptx(kernel, types.void(types.uint32[:]), arch))
        assert sum("%clock" in b for b in blocks) == 2
        assert sum("%laneid" in b for b in blocks) == 1


def test_importing_a_module_is_registration_enough() -> None:
    program = """
from numba import cuda, types
from nbtc.intrinsics import special

def kernel(out):
    out[0] = special.laneid()

assert "%laneid" in cuda.compile_ptx(kernel, types.void(types.uint32[:]), cc=(9, 0))[0]
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(nbtc.__file__).parents[1])


def test_a_tensor_map_in_global_memory() -> None:
    def kernel(maps: Any, index: Any) -> None:
        tile = cuda.shared.array(4096, types.float32)
        bar = cuda.shared.array(1, types.uint64)
        one = address.tensor_map(maps[index])
        fence.tensormap_acquire(one, scope="gpu")
        tma.load(tile, one, (0, 0), bar)

    ptx = compile_ptx(kernel, types.void(types.uint8[:, ::1], types.int32))
    acquire, load = asm_blocks(ptx)
    assert acquire.split("[")[1].split("]")[0] == load.split("[")[2].split(",")[0]


def test_a_hand_over_assembles(tmp_path: Path) -> None:
    def kernel(out: Any, tensor_map: Any) -> None:
        bars = cuda.shared.array(2, types.uint64)
        tile = cuda.shared.array(4096, types.float32)
        if cuda.threadIdx.x == 0:
            mbarrier.init(bars, 1)
            fence.mbarrier_init()
        sync.barrier_sync(0)
        if cuda.threadIdx.x < 32 and sync.elect():
            mbarrier.arrive_expect_tx(bars, 16384)
            tma.load(tile, tensor_map, (0, 64), bars, cache_policy=0x14F0000000000000)
        while not mbarrier.try_wait_parity(bars, 0):
            pass
        mbarrier.arrive_remote(cluster.mapa(bars, 1))
        out[cuda.threadIdx.x] = tile[cuda.threadIdx.x]

    ptx = compile_ptx(kernel, types.void(types.float32[:], TENSOR_MAP))
    assert sum("elect.sync _|" in line for line in ptx.splitlines()) == 1
    assert "MEMBAR" not in _sass(ptx, tmp_path)


def _sass(ptx: str, folder: Path) -> str:
    (folder / "k.ptx").write_text(ptx)
    cubin = str(folder / "k.cubin")
    subprocess.run(
        [tools.find("ptxas").path, "-arch=sm_90a", str(folder / "k.ptx"), "-o", cubin], check=True
    )
    disassembler = tools.find("nvdisasm").path
    return subprocess.run([disassembler, cubin], check=True, capture_output=True, text=True).stdout


def _machine_code(tmp_path: Path, call: str) -> str:
    source = (
        "def kernel(n):\n    bar = cuda.shared.array(1, types.uint64)\n"
        f"    mbarrier.init(bar, 1)\n    {call}\n"
    )
    scope = {"cuda": cuda, "types": types, **modules()}
    exec(source, scope)
    return _sass(compile_ptx(scope["kernel"], types.void(types.uint32)), tmp_path)


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("mbarrier.arrive(bar)", ""),
        ("mbarrier.arrive_expect_tx(bar, n)", ""),
        ("mbarrier.arrive_remote(cluster.mapa(bar, n))", ""),
        ("mbarrier.arrive_remote(cluster.mapa(bar, n), sem='release', scope='cluster')", "GPU"),
        ("fence.proxy_async()", "CTA"),
        ("fence.proxy_async_all()", "GPU"),
        ("fence.mbarrier_init()", ""),
        ("cluster.arrive()", "GPU"),
        ("cluster.arrive(sem='relaxed')", ""),
    ],
)
def test_the_default_is_the_cheap_form(tmp_path: Path, call: str, found: str) -> None:
    """What the docstrings say about MEMBAR is what ptxas makes."""
    widest = re.findall(r"MEMBAR\.\w+\.(\w+)", _machine_code(tmp_path, call))
    assert ("GPU" in widest) == (found == "GPU")
    assert bool(widest) == bool(found)


def test_collective_calls_are_convergent_and_others_are_not() -> None:
    def kernel(out: Any) -> None:
        sync.barrier_sync(1, 64)
        sync.elect()
        fence.proxy_async()

    compiled = compile_cuda(
        kernel,
        types.void,
        (types.int32[:],),
        lineinfo=False,
        cc=(9, 0, "a"),
        nvvm_options={"opt": 3},
    )
    calls = [
        line for line in compiled.library.get_llvm_str().splitlines() if "asm sideeffect" in line
    ]
    text = re.compile(r'asm sideeffect "([^ "]*)')
    found = {text.search(line)[1]: "convergent" in line for line in calls}  # type: ignore[index]
    assert found == {
        "barrier.sync.aligned": True,
        "elect.sync": True,
        "fence.proxy.async.shared::cta;": False,
    }


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_a_kernel_without_loops_keeps_its_count_of_barriers(arch: str) -> None:
    def kernel(out: Any, n: Any) -> None:
        i = cuda.threadIdx.x
        if i < n:
            out[i] = i
        else:
            out[i] = n * 3
        sync.barrier_sync(1, 64)
        if i < n:
            out[i + 1] = out[i] * 5
            if out[i + 2] > n:
                return
        else:
            out[i + 3] = out[i] * 7
        sync.warp_sync()
        out[0] = sync.vote_ballot(i < n)

    blocks = asm_blocks(compile_ptx(kernel, types.void(types.int32[:], types.int32), arch))
    found = [re.search(r"(bar\S*|vote\S*) ", b)[1] for b in blocks]  # type: ignore[index]
    assert found == ["barrier.sync.aligned", "bar.warp.sync", "vote.sync.ballot.b32"]


# -- errors from the compiler, as a user sees them ------------------------------------------------


def _error(kernel: Any, signature: Any, arch: str = "sm_90a") -> str:
    with pytest.raises((InstructionError, ArchError)) as caught:
        compile_ptx(kernel, signature, arch)
    return str(caught.value)


@pytest.mark.parametrize("sign", ["", "u"])
def test_sixty_four_bits_do_not_become_thirty_two(sign: str) -> None:
    def kernel(n: Any) -> None:
        bar = cuda.shared.array(1, types.uint64)
        mbarrier.init(bar, n)

    message = _error(kernel, types.void(getattr(types, f"{sign}int64")))
    assert message == (
        f"mbarrier.init: count is {sign}int64, needs int32 or uint32: wrap it as {sign}int32(...); "
        "literals that fit are accepted as they are"
    )


def test_waiting_on_a_remote_barrier_is_refused() -> None:
    def kernel(n: Any) -> None:
        bar = cuda.shared.array(1, types.uint64)
        mbarrier.try_wait_parity(cluster.mapa(bar, n), 0)

    message = _error(kernel, types.void(types.int32))
    assert message.startswith("mbarrier.try_wait_parity: bar is a shared::cluster address")
    assert "remote arrive" in message


def test_a_modifier_that_is_not_a_constant_says_so() -> None:
    def kernel(n: Any) -> None:
        tma.wait_group_read(n)

    message = _error(kernel, types.void(types.int32))
    assert message.startswith("bulk.wait_group_read: n is int32, and must be a compile-time")


def test_an_instruction_of_another_target_names_it() -> None:
    def kernel(tensor_map: Any) -> None:
        tile = cuda.shared.array(4096, types.float32)
        tma.scatter4(tensor_map, (0, 1, 2, 3, 4), tile)

    message = _error(kernel, types.void(TENSOR_MAP))
    assert "tma.scatter4" in message
    assert "sm_90a" in message
    assert "sm_100a" in message


def test_an_array_is_no_tensor_map() -> None:
    def kernel(a: Any) -> None:
        bar = cuda.shared.array(1, types.uint64)
        tma.load(bar, a, (0, 0), bar)

    message = _error(kernel, types.void(types.float32[:]))
    assert message.startswith("tma.load: tensor_map is an array, needs a TensorMap argument")


def test_six_coordinates_are_too_many() -> None:
    def kernel(tensor_map: Any) -> None:
        bar = cuda.shared.array(1, types.uint64)
        tma.load(bar, tensor_map, (0, 0, 0, 0, 0, 0), bar)

    message = _error(kernel, types.void(TENSOR_MAP))
    assert message == "tma.load: coordinates has 6 values, takes 1 to 5"


def test_a_missing_operand_shows_the_signature() -> None:
    def kernel() -> None:
        bar = cuda.shared.array(1, types.uint64)
        mbarrier.init(bar)

    message = _error(kernel, types.void())
    assert message.startswith("mbarrier.init(bar, count)")
    assert "count" in message
