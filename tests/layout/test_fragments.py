"""Fragment maps against thread-value layouts written as (shape, stride) pairs, column-major."""

from __future__ import annotations

import numpy as np
import pytest

from nbtc.layout import fragments as fr


def strided(index: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """Evaluate a layout at a linear index, first mode fastest."""
    total = 0
    for size, step in zip(shape, stride, strict=True):
        index, digit = divmod(index, size)
        total += digit * step
    assert index == 0
    return total


THREADS = ((4, 8, 4), (128, 1, 16))


@pytest.mark.parametrize("n", [8, 24, 96, 256])
def test_wgmma_d_f32(n):
    for thread in range(128):
        for reg in range(n // 2):
            want = strided(thread, *THREADS) + strided(reg, (2, 2, n // 8), (64, 8, 512))
            assert fr.wgmma_row(thread, reg) + 64 * fr.wgmma_col(thread, reg) == want


def test_wgmma_d_f16():
    for thread in range(128):
        for value in range(32):
            want = strided(thread, *THREADS) + strided(value, (2, 2, 8), (64, 8, 512))
            reg, half = divmod(value, 2)
            got = fr.wgmma_f16_row(thread, reg) + 64 * fr.wgmma_f16_col(thread, reg, half)
            assert got == want


@pytest.mark.parametrize(
    ("bits", "thread_stride", "shape", "stride"),
    [
        (16, (128, 1, 16), (2, 2, 2), (64, 8, 512)),
        (32, (64, 1, 16), (2, 2), (8, 256)),
        (8, (256, 1, 16), (4, 2, 2), (64, 8, 1024)),
    ],
)
def test_wgmma_a(bits, thread_stride, shape, stride):
    per = 32 // bits
    for thread in range(128):
        for value in range(4 * per):
            reg, element = divmod(value, per)
            want = strided(thread, (4, 8, 4), thread_stride) + strided(value, shape, stride)
            got = fr.wgmma_a_row(thread, reg) + 64 * fr.wgmma_a_col(thread, reg, element, bits)
            assert got == want


@pytest.mark.parametrize(
    ("bits", "k", "thread_stride", "shape", "stride"),
    [
        (16, 16, (32, 1), (2, 2, 2), (16, 8, 128)),
        (8, 32, (64, 1), (4, 2, 2), (16, 8, 256)),
        (32, 8, (16, 1), (2, 2), (8, 64)),
    ],
)
def test_mma_a(bits, k, thread_stride, shape, stride):
    per = 32 // bits
    seen = set()
    for lane in range(32):
        for value in range(4 * per):
            reg, element = divmod(value, per)
            want = strided(lane, (4, 8), thread_stride) + strided(value, shape, stride)
            row, col = fr.mma_a_row(lane, reg), fr.mma_a_col(lane, reg, element, bits)
            assert row + 16 * col == want
            seen.add((row, col))
    assert len(seen) == 16 * k


@pytest.mark.parametrize(
    ("bits", "thread_stride", "shape", "stride"),
    [
        (16, (16, 1), (2, 2), (8, 64)),
        (8, (32, 1), (4, 2), (8, 128)),
        (32, (8, 1), (2,), (32,)),
    ],
)
def test_mma_b(bits, thread_stride, shape, stride):
    per = 32 // bits
    for lane in range(32):
        for value in range(2 * per):
            reg, element = divmod(value, per)
            want = strided(lane, (4, 8), thread_stride) + strided(value, shape, stride)
            got = fr.mma_b_col(lane) + 8 * fr.mma_b_row(lane, reg, element, bits)
            assert got == want


def test_mma_d():
    for lane in range(32):
        for reg in range(4):
            want = strided(lane, (4, 8), (32, 1)) + strided(reg, (2, 2), (16, 8))
            assert fr.mma_row(lane, reg) + 16 * fr.mma_col(lane, reg) == want
        for reg, half in np.ndindex(2, 2):
            assert fr.mma_f16_row(lane, reg) == fr.mma_row(lane, 2 * reg + half)
            assert fr.mma_f16_col(lane, half) == fr.mma_col(lane, 2 * reg + half)


def test_arrays_and_ints_agree():
    threads, regs = np.arange(128)[:, None], np.arange(128)[None, :]
    rows, cols = fr.wgmma_row(threads, regs), fr.wgmma_col(threads, regs)
    assert len(set(zip(rows.ravel().tolist(), cols.ravel().tolist(), strict=True))) == 64 * 256
    assert (rows[77, 13], cols[77, 13]) == (fr.wgmma_row(77, 13), fr.wgmma_col(77, 13))


@pytest.mark.parametrize(("bits", "k", "per_group"), [(16, 32, 4), (32, 16, 2), (8, 64, 4)])
def test_wgmma_metadata_covers_every_group_once(bits, k, per_group):
    seen = {}
    for thread in range(128):
        if bits != 8 and thread & 2:
            continue  # selector 0 takes threads 0 and 1 of each four
        for bit in range(0, 32, 4):
            place = (
                fr.wgmma_metadata_row(thread, bit, bits),
                fr.wgmma_metadata_k(thread, bit, bits),
            )
            assert place not in seen
            seen[place] = thread
    assert len(seen) == 64 * (k // per_group)


def test_byte_matrices_cover():
    places = {
        (fr.matrix_m16n16_row(lane, reg, byte), fr.matrix_m16n16_col(lane, byte))
        for lane, reg, byte in np.ndindex(32, 2, 4)
    }
    assert len(places) == 256
    places = {
        (fr.matrix_m16n8_row(lane, byte), fr.matrix_m16n8_col(lane, byte))
        for lane, byte in np.ndindex(32, 4)
    }
    assert len(places) == 128
