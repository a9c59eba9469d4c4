"""Swizzle patterns against the tables of the PTX ISA and case C28."""

from __future__ import annotations

import numpy as np
import pytest

from nbtc.errors import LayoutError
from nbtc.layout import swizzle as sw

BITS = {  # mode: list of (target bit, source bit)
    "32B": [(4, 7)],
    "64B": [(4, 7), (5, 8)],
    "96B": [(4, 7)],
    "128B": [(4, 7), (5, 8), (6, 9)],
    "128B_ATOM_32B": [(5, 7), (6, 8)],
    "128B_ATOM_32B_FLIP_8B": [(5, 7), (6, 8), (3, 7)],
    "128B_ATOM_64B": [(6, 7)],
    "none": [],
}


@pytest.mark.parametrize("mode", sw.MODES)
def test_every_address_bit_by_bit(mode):
    addresses = np.arange(4096)
    want = addresses.copy()
    for target, source in BITS[mode]:
        want ^= ((addresses >> source) & 1) << target
    got = sw.swizzle(addresses, mode)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(sw.swizzle(got, mode), addresses)
    assert [sw.swizzle(int(a), mode) for a in addresses[::37]] == want[::37].tolist()
    size = sw.repeat(mode)
    shifted = sw.swizzle(addresses + 5 * size, mode) - 5 * size
    np.testing.assert_array_equal(shifted, want)


def test_c28_absolute_address():
    offset = 3 * 128 + 16 * 2
    assert sw.swizzle(0x400 + offset, "128B") - 0x400 == 400
    assert sw.swizzle(0x480 + offset, "128B") - 0x480 == 480
    with pytest.raises(LayoutError, match="0x480 is 128 mod 1024; SWIZZLE_128B needs"):
        sw.check_base(0x480, "128B")
    sw.check_base(0x480, "none")


def test_base_offset():
    assert [sw.base_offset(a, "128B") for a in (0x400, 0x480, 0x780)] == [0, 1, 7]
    assert [sw.base_offset(a, "64B") for a in (0x400, 0x480, 0x780)] == [0, 1, 3]
    assert [sw.base_offset(a, "32B") for a in (0x400, 0x480, 0x780)] == [0, 1, 1]


def test_unknown_mode():
    with pytest.raises(LayoutError, match="must be one of 'none', '32B'"):
        sw.swizzle(0, "256B")
