"""Notes of ptxas: codes, Python lines, remedies, and the faults found by counting."""

from __future__ import annotations

import pytest
from numba import cuda

from nbtc import arch, device, jit, notes, ptxas, sass
from nbtc.errors import CompileError
from nbtc.intrinsics import wgmma
from nbtc.ptx import registers
from nbtc.ptx.addresses import shared as shared_address
from nbtc.source_lines import LineTable, PythonLine

N = 64


@pytest.fixture(autouse=True)
def _no_disk_cache(monkeypatch):
    monkeypatch.setenv("NBTC_CACHE_DIR", "")


@device
def step(acc, descriptor, *, fence=True, wait=True):
    if fence:
        acc = wgmma.fence(acc)
    acc = wgmma.mma_async_bf16(acc, descriptor, descriptor, n=N)
    wgmma.commit_group()
    if wait:
        acc = wgmma.wait_group(acc, n=0)
    return acc


def _kernel(fence: bool, wait: bool, trips: int = 4):
    @jit(launch_bounds=128)
    def kernel(out):
        tile = cuda.shared.array(8192, "uint16", 1024)
        tile[cuda.threadIdx.x] = 0
        cuda.syncthreads()
        descriptor = wgmma.matrix_descriptor(
            shared_address(0), swizzle="128B", leading_bytes=16, stride_bytes=1024
        )
        acc = registers.zeros(32)
        for _ in range(trips):
            acc = step(acc, descriptor, fence=fence, wait=wait)
        out[cuda.threadIdx.x, 0] = acc[0]

    return kernel


def test_a_right_pipeline_has_no_notes():
    compiled = _kernel(True, True).compile("float32[:, ::1]", arch="sm_90a")
    assert compiled.notes == ()
    assert compiled.count("HGMMA") >= 1
    assert compiled.count("WARPGROUP.ARRIVE") >= 1
    assert compiled.resources.spill_bytes == 0


def test_missing_fence_is_found_by_counting():
    kernel = _kernel(False, True)
    with pytest.raises(CompileError) as caught:
        kernel.compile("float32[:, ::1]", arch="sm_90a")
    text = str(caught.value)
    mma = step.py_func.__code__.co_firstlineno + 4
    assert "C7519" in text
    assert f"test_notes.py:{mma}: " in text
    assert "wgmma.fence" in text
    allowed = kernel.compile("float32[:, ::1]", arch="sm_90a", notes="ignore")
    assert [n.code for n in allowed.notes] == ["C7519"]
    with pytest.warns(UserWarning, match="C7519"):
        kernel.compile("float32[:, ::1]", arch="sm_90a", notes="warn")


def test_missing_wait_is_an_error_with_the_line():
    with pytest.raises(CompileError) as caught:
        _kernel(True, False, trips=1).compile("float32[:, ::1]", arch="sm_90a")
    text = str(caught.value)
    assert "C7517" in text or "C7514" in text
    assert "test_notes.py:" in text
    assert "wgmma.wait_group" in text


SETMAXNREG = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p) {bounds}
{{
.reg .b32 r; .reg .b64 a;
.loc 1 41 0
setmaxnreg.dec.sync.aligned.u32 40;
.loc 1 42 0
ld.param.u64 a, [p];
mov.u32 r, %tid.x;
st.global.u32 [a], r;
ret;
}}
.file 1 "kernel.py"
"""


def _notes_of(ptx: str) -> list[notes.Note]:
    done = ptxas.assemble(ptx, arch.parse("sm_90a"))
    found = notes.parse(done.log, ptx)
    return found + notes.count_against_sass(ptx, sass.disassemble(done.cubin, lines=True), found)


@pytest.mark.parametrize("bounds", ["", ".maxntid 384, 1, 1"])
def test_ignored_setmaxnreg(bounds):
    (note,) = _notes_of(SETMAXNREG.format(bounds=bounds))
    assert note.code == "C7508"
    assert note.serious
    assert note.lines == (PythonLine("kernel.py", 41),)
    assert "launch_bounds" in note.remedy


def test_setmaxnreg_with_min_blocks_is_kept():
    assert _notes_of(SETMAXNREG.format(bounds=".maxntid 384, 1, 1 .minnctapersm 1")) == []


def test_dropped_setmaxnreg_is_found_without_a_note():
    ptx = SETMAXNREG.format(bounds="")
    found = notes.count_against_sass(ptx, "        /*0000*/  EXIT ;\n", [])
    assert [n.code for n in found] == ["C7508"]


@pytest.mark.parametrize("code", ["C7517", "C7518", "C7520"])
def test_a_fence_added_for_a_missing_wait_is_no_second_fault(code):
    wait, fence = notes.Note(code, "w"), notes.Note("C7519", "f")
    with pytest.raises(CompileError) as caught:
        notes.report([fence, wait], "k", "error")
    text = str(caught.value)
    assert f"the same missing wait as {code}" in text
    assert "put wgmma.fence" not in text
    with pytest.raises(CompileError, match=r"put wgmma\.fence"):
        notes.report([fence], "k", "error")


def test_fences_that_ptxas_repeats_are_no_fault():
    ptx = '.file 1 "k.py"\n.loc 1 7 0\nwgmma.fence.sync.aligned;\n.loc 1 8 0\nwgmma.mma_async x;\n'
    listing = (
        '\t//## File "k.py", line 7\n        /*0000*/  WARPGROUP.ARRIVE ;\n'
        "        /*0010*/  WARPGROUP.ARRIVE ;\n"
    )
    assert notes.count_against_sass(ptx, listing, []) == []
    added = listing + '\t//## File "k.py", line 8\n        /*0020*/  WARPGROUP.ARRIVE ;\n'
    (note,) = notes.count_against_sass(ptx, added, [])
    assert note.code == "C7519"
    assert note.lines == (PythonLine("k.py", 8),)


@pytest.mark.parametrize("code", sorted(notes.CAUSES))
def test_codes_are_parsed_and_not_words(code):
    log = f"ptxas info    : ({code}) words of some later release in around line 4 of 'k'\n"
    ptx = '.file 1 "k.py"\n.loc 1 9 0\nnop;\nnop;\n'
    (note,) = notes.parse(log, ptx)
    assert note.code == code
    assert note.serious
    assert note.lines == (PythonLine("k.py", 9),)
    with pytest.raises(CompileError, match=rf"{code} k.py:9: .*Remedy: "):
        notes.report([note], "k", "error")


def test_unknown_codes_outside_the_range_are_kept_and_harmless():
    (note,) = notes.parse("ptxas info    : (C9999) something\n", "")
    assert not note.serious
    notes.report([note], "k", "error")


def test_vprintf_names_print_and_the_emulator():
    @jit(launch_bounds=128)
    def kernel(out):
        acc = wgmma.fence(registers.zeros(32))
        descriptor = wgmma.matrix_descriptor(
            shared_address(0), swizzle="128B", leading_bytes=16, stride_bytes=1024
        )
        acc = wgmma.mma_async_bf16(acc, descriptor, descriptor, n=N)
        wgmma.commit_group()
        print(1)
        acc = wgmma.wait_group(acc, n=0)
        out[0] = acc[0]

    with pytest.raises(CompileError, match=r"C75(09|10).*print.*emulator"):
        kernel.compile("float32[:]", arch="sm_90a")


@pytest.mark.parametrize("arch_name", ["sm_90a", "sm_100a", "sm_103a"])
def test_quick_counts_agree_with_nvdisasm(arch_name):
    ptx = SETMAXNREG.format(bounds=".maxntid 384, 1, 1 .minnctapersm 1")
    version = "8.8" if arch_name == "sm_103a" else "8.6"
    ptx = ptx.replace("sm_90a", arch_name).replace(".version 8.0", f".version {version}")
    done = ptxas.assemble(ptx, arch.parse(arch_name))
    assert sass.quick_counts(done.cubin) == (0, 1)
    assert sass.count(sass.disassemble(done.cubin), "USETMAXREG") == 1
    if arch_name == "sm_90a":
        for fence in (True, False):
            kernel = _kernel(fence, True)
            compiled = kernel.compile("float32[:, ::1]", arch=arch_name, notes="ignore")
            arrives = compiled.count("WARPGROUP.ARRIVE")
            assert arrives >= 1
            assert sass.quick_counts(compiled.cubin) == (arrives, 0)


def test_line_table_follows_inlining():
    ptx = (
        ".loc 1 30 0\n.loc 2 7 1, function_name F, inlined_at 1 30 0\n"
        ".loc 2 90 1, function_name G, inlined_at 2 7 1\nadd;\n.loc 1 31 0\nret;\n"
        '.file 1 "k.py"\n.file 2 "/lib" "h.py"\n'
    )
    table = LineTable(ptx)
    lines = [str(line) for line in table.at(4)]
    assert lines == ["k.py:30", "/lib/h.py:7", "/lib/h.py:90"]
    assert [str(line) for line in table.at(6)] == ["k.py:31"]
    assert table.at(0) == ()
    assert table.chain_of(PythonLine("/lib/h.py", 90))[0] == PythonLine("k.py", 30)
