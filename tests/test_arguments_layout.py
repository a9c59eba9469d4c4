"""The parameter block against what libNVVM declares and what ptxas put into the cubin."""

from __future__ import annotations

import ctypes
import re
import struct

import numpy as np
import pytest
from numba.cuda import types

from nbtc import arch, numba_compat, ptxas
from nbtc.arguments import probe
from nbtc.errors import LaunchError
from nbtc.parameters import ParameterLayout
from nbtc.ptx.types_numba import TENSOR_MAP

SIGNATURES = {
    "arrays": (types.float32[::1], types.float64[:, :], types.int8[:, :, ::1]),
    "scalars": (
        types.int8, types.int16, types.int32, types.int64, types.uint8, types.uint16, types.uint32,
        types.uint64, types.boolean, types.float32, types.float64,
    ),
    "small_before_large": (types.int8, types.float64, types.boolean, types.int32, types.int64),
    "compound": (
        types.complex64, types.complex128, types.none, types.UniTuple(types.int32, 3),
        types.Tuple((types.int8, types.float64)), types.float32[::1],
    ),
    "map_between_scalars": (types.int32, TENSOR_MAP, types.float32),
    "maps": (TENSOR_MAP, TENSOR_MAP, types.int32, TENSOR_MAP, types.float32[:, ::1], types.int32),
}  # fmt: skip
WIDTH = {"8": 1, "16": 2, "32": 4, "64": 8}


def compile_ptx(signature, target: str) -> str:
    names = ", ".join(f"a{i}" for i in range(len(signature)))
    scope: dict[str, object] = {}
    exec(f"def kernel({names}):\n    return\n", scope)  # one parameter per argument type
    found = arch.parse(target)
    options = numba_compat.CodeOptions.for_arch(found, lineinfo=False, fastmath=False)
    bounds = numba_compat.KernelBounds()
    return numba_compat.kernel_to_ptx(
        scope["kernel"], signature, found, options, bounds=bounds, entry="kernel"
    )


def declared(ptx: str) -> list[tuple[int, int]]:
    """Return (size, alignment) of every ``.param`` of the entry."""
    found = []
    head = ptx[ptx.index(".entry") : ptx.index("{", ptx.index(".entry"))]
    for line in re.findall(r"\.param ([^,\n)]*)", head):
        align = re.match(r"\.align (\d+) \.b8 \S+\[(\d+)\]", line)
        if align:
            found.append((int(align[2]), int(align[1])))
        else:
            width = WIDTH[re.match(r"\.[a-z](\d+)", line)[1]]
            found.append((width, width))
    return found


def cubin_parameters(cubin: bytes) -> dict[int, tuple[int, int]]:
    """Return ordinal -> (offset, size) from the EIATTR_KPARAM_INFO records of the only kernel."""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    entry, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + i * entry) for i in range(count)]
    text = headers[names][4]
    found = {}
    for header in headers:
        name = cubin[text + header[0] : cubin.index(b"\0", text + header[0])]
        if not name.startswith(b".nv.info."):
            continue
        at, end = header[4], header[4] + header[5]
        while at < end:
            kind, attribute, size = struct.unpack_from("<BBH", cubin, at)
            at += 4
            if kind != 4:  # the value is in the header itself
                continue
            if attribute == 0x17:
                _, ordinal, offset, flags = struct.unpack_from("<IHHI", cubin, at)
                found[ordinal] = (offset, flags >> 18)
            at += size
    return found


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("name", SIGNATURES)
def test_offsets_are_those_of_the_compiler(name, target):
    signature = SIGNATURES[name]
    layout = ParameterLayout(signature)
    ptx = compile_ptx(signature, target)
    sizes = declared(ptx)
    assert [p.size for p in layout.parameters] == [size for size, _ in sizes]
    assert all(p.offset % a == 0 for p, (_, a) in zip(layout.parameters, sizes, strict=True))

    cubin = ptxas.assemble(ptx, arch.parse(target), lineinfo=False).cubin
    real = cubin_parameters(cubin)
    assert [p.size for p in layout.parameters] == [real[i][1] for i in sorted(real)]
    if TENSOR_MAP not in signature:
        assert [p.offset for p in layout.parameters] == [real[i][0] for i in sorted(real)]
    else:
        # ptxas aligns maps within the constant bank, whose parameters start at 0x210 or 0x380.
        base = 0x210 if target == "sm_90a" else 0x380
        maps = [i for i, p in enumerate(layout.parameters) if p.size == 128]
        assert [(base + real[i][0]) % 64 for i in maps] == [0] * len(maps)


def test_tensor_map_parameter_is_128_bytes_aligned_to_64_or_128():
    for target in ("sm_90a", "sm_100a"):
        ptx = compile_ptx((types.int32, TENSOR_MAP, types.float32), target)
        assert re.search(r"\.param \.align (64|128) \.b8 \w+\[128\]", ptx), ptx


def test_values_land_at_their_offsets():
    layout = ParameterLayout(SIGNATURES["small_before_large"] + (TENSOR_MAP, types.uint16))
    buffer = ctypes.create_string_buffer(layout.size)
    layout.pack_into(buffer, [-2, 1.5, True, -7, 1 << 40, b"\x5a" * 128, 65535])
    raw = buffer.raw
    codes = ("<b", "<d", "<?", "<i", "<q", "<128s", "<H")
    got = [
        struct.unpack_from(code, raw, p.offset)[0]
        for code, p in zip(codes, layout.parameters, strict=True)
    ]
    assert got == [-2, 1.5, True, -7, 1 << 40, b"\x5a" * 128, 65535]
    assert [p.offset for p in layout.parameters] == [0, 8, 16, 20, 24, 64, 192]


def test_probe_and_layout_agree_on_the_number_of_values():
    args = [np.float32(1), (1, 2j), None, True, np.int8(3)]
    from nbtc.arguments import types_of

    layout = ParameterLayout(types_of(args))
    fields = probe(args)[1]
    buffer = ctypes.create_string_buffer(layout.size)
    layout.pack_into(buffer, fields)
    assert len(fields) == len(layout.parameters)


@pytest.mark.parametrize(
    ("type_", "value", "message"),
    [
        (types.int32, 2**31, "2147483648 does not fit int32 (-2147483648..2147483647)"),
        (types.int32, -(2**31) - 1, "-2147483649 does not fit int32"),
        (types.uint8, 256, "256 does not fit uint8 (0..255)"),
        (types.uint64, -1, "-1 does not fit uint64 (0..18446744073709551615)"),
        (types.int64, 1.5, "1.5 does not fit int64"),
        (types.float32, 1e300, "1e+300 does not fit float32"),
    ],
)
def test_value_out_of_range_names_argument_value_and_range(type_, value, message):
    layout = ParameterLayout((types.float32, type_))
    buffer = ctypes.create_string_buffer(layout.size)
    with pytest.raises(LaunchError, match=re.escape(f"argument 1: {message}")):
        layout.pack_into(buffer, [0.0, value])


@pytest.mark.parametrize(
    ("type_", "value"),
    [(types.int8, -128), (types.uint32, 2**32 - 1), (types.int16, np.int64(-5)),
     (types.float32, 3), (types.float32, float("inf")), (types.boolean, np.bool_(True))],
)  # fmt: skip
def test_values_at_the_edge_are_taken(type_, value):
    layout = ParameterLayout((type_,))
    buffer = ctypes.create_string_buffer(layout.size)
    layout.pack_into(buffer, [value])
    code = "<" + layout.parameters[0].code
    assert struct.unpack(code, buffer.raw)[0] == value


def test_wrong_number_of_values_says_so():
    layout = ParameterLayout((types.int32, types.int32))
    buffer = ctypes.create_string_buffer(layout.size)
    with pytest.raises(LaunchError, match="have 1 values, the kernel takes 2"):
        layout.pack_into(buffer, [1])


def test_unknown_type_is_refused():
    with pytest.raises(LaunchError, match="argument 0: a kernel cannot take"):
        ParameterLayout((types.unicode_type,))
