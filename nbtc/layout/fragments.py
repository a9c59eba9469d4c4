"""Register fragments of wgmma, mma.sync, ldmatrix and stmatrix: (thread, register) -> element.

All functions are plain arithmetic on integers or integer arrays, for kernels, host and emulator.
``thread`` is the thread in its warpgroup (0..127), ``lane`` the lane in its warp (0..31),
``register`` the index of the 32-bit register in the operand list, ``element`` the element inside
a register, lowest bits first. ``bits`` is the width of one element. PTX ISA 9.7.14 (mma), 9.7.15
(wgmma).
"""

from __future__ import annotations

from typing import Any

# --- wgmma: D in f32 or s32, one element per register -------------------------------------------


def wgmma_row(thread: Any, register: Any) -> Any:
    """Return the row (0..63) of an f32 or s32 accumulator register."""
    return (thread >> 5) * 16 + ((thread & 31) >> 2) + ((register >> 1) & 1) * 8


def wgmma_col(thread: Any, register: Any) -> Any:
    """Return the column (0..N-1) of an f32 or s32 accumulator register."""
    return (register >> 2) * 8 + (thread & 3) * 2 + (register & 1)


# --- wgmma: D in f16, two elements per register -------------------------------------------------


def wgmma_f16_row(thread: Any, register: Any) -> Any:
    """Return the row (0..63) of an f16 accumulator register, the same for both halves."""
    return (thread >> 5) * 16 + ((thread & 31) >> 2) + (register & 1) * 8


def wgmma_f16_col(thread: Any, register: Any, half: Any) -> Any:
    """Return the column of one half (0 low, 1 high) of an f16 accumulator register."""
    return (register >> 1) * 8 + (thread & 3) * 2 + half


# --- wgmma: A in registers ----------------------------------------------------------------------


def wgmma_a_row(thread: Any, register: Any) -> Any:
    """Return the row (0..63) of a register (0..3) of operand A."""
    return (thread >> 5) * 16 + ((thread & 31) >> 2) + (register & 1) * 8


def wgmma_a_col(thread: Any, register: Any, element: Any, bits: Any) -> Any:
    """Return the K index of an element of operand A; sparse: the index in the stored half."""
    per = 32 // bits
    return per * (thread & 3) + element + 4 * per * (register >> 1)


# --- mma.sync, every m16n8 shape ----------------------------------------------------------------


def mma_a_row(lane: Any, register: Any) -> Any:
    """Return the row (0..15) of a register of operand A of mma.sync."""
    return (lane >> 2) + (register & 1) * 8


def mma_a_col(lane: Any, register: Any, element: Any, bits: Any) -> Any:
    """Return the K index of an element of operand A of mma.sync; f64 counts as ``bits=32``."""
    per = 32 // bits
    return per * (lane & 3) + element + 4 * per * (register >> 1)


def mma_b_row(lane: Any, register: Any, element: Any, bits: Any) -> Any:
    """Return the K index of an element of operand B of mma.sync; f64 counts as ``bits=32``."""
    per = 32 // bits
    return per * (lane & 3) + element + 4 * per * register


def mma_b_col(lane: Any) -> Any:
    """Return the column (0..7) of every element of operand B of mma.sync."""
    return lane >> 2


def mma_row(lane: Any, register: Any) -> Any:
    """Return the row (0..15) of an f32, s32 or f64 C or D register of mma.sync."""
    return (lane >> 2) + (register >> 1) * 8


def mma_col(lane: Any, register: Any) -> Any:
    """Return the column (0..7) of an f32, s32 or f64 C or D register of mma.sync."""
    return (lane & 3) * 2 + (register & 1)


def mma_f16_row(lane: Any, register: Any) -> Any:
    """Return the row (0..15) of an f16 C or D register of mma.sync, the same for both halves."""
    return (lane >> 2) + register * 8


def mma_f16_col(lane: Any, half: Any) -> Any:
    """Return the column (0..7) of one half of an f16 C or D register of mma.sync."""
    return (lane & 3) * 2 + half


# --- ldmatrix and stmatrix ----------------------------------------------------------------------


def matrix_row(lane: Any) -> Any:
    """Return the row of an m8n8.b16 register (not transposed): ldmatrix and stmatrix."""
    return lane >> 2


def matrix_col(lane: Any, half: Any) -> Any:
    """Return the 16-bit column of one half of an m8n8.b16 register (not transposed)."""
    return (lane & 3) * 2 + half


def matrix_address_lane(matrix: Any, row: Any) -> Any:
    """Return the lane that gives the address of a row of an m8n8 (or m8n16, m16n8) matrix."""
    return matrix * 8 + row


def matrix_m16n16_row(lane: Any, register: Any, byte: Any) -> Any:
    """Return the memory row of a byte of ldmatrix m16n16.trans; register is 0 or 1 of a matrix."""
    return (lane & 3) * 4 + 2 * register + (byte & 1)


def matrix_m16n16_col(lane: Any, byte: Any) -> Any:
    """Return the byte column of a byte of ldmatrix m16n16.trans."""
    return (lane >> 2) + (byte >> 1) * 8


def matrix_m8n16_col(lane: Any, byte: Any) -> Any:
    """Return the byte column of a byte of ldmatrix m8n16 (its row is `matrix_row`)."""
    return (lane & 3) * 4 + byte


def matrix_m16n8_row(lane: Any, byte: Any) -> Any:
    """Return the matrix row of a byte of stmatrix m16n8.trans: the byte's place in its 16 B row."""
    return (lane >> 2) + (byte >> 1) * 8


def matrix_m16n8_col(lane: Any, byte: Any) -> Any:
    """Return the matrix column of a byte of stmatrix m16n8.trans: the memory row it goes to."""
    return (lane & 3) * 2 + (byte & 1)


# --- sparse metadata of wgmma -------------------------------------------------------------------


def wgmma_metadata_row(thread: Any, bit: Any, bits: Any) -> Any:
    """Return the row of A that a metadata bit describes (16- and 32-bit types: two rows)."""
    half = (bit >> 4) if bits >= 16 else (thread & 1)
    return (thread >> 5) * 16 + ((thread & 31) >> 2) + 8 * half


def wgmma_metadata_k(thread: Any, bit: Any, bits: Any) -> Any:
    """Return the first dense k of the group (one nibble) that a metadata bit describes."""
    if bits == 16:
        return 16 * (thread & 1) + ((bit & 15) >> 2) * 4
    if bits == 32:
        return 8 * (thread & 1) + ((bit & 15) >> 2) * 2
    return 32 * ((thread >> 1) & 1) + (bit >> 2) * 4
