"""Kernel arguments: arrays to addresses, numbers to the parameter's width, maps to bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nbtc.arch import parse_cc
from nbtc.layout import tensormap_rules

from ..errors import EmulatorError
from .memory import owner_of
from .program import Function, Variable

_INT_RANGE = {
    "u8": (0, 2**8 - 1),
    "s8": (-(2**7), 2**7 - 1),
    "b8": (-(2**7), 2**8 - 1),
    "u16": (0, 2**16 - 1),
    "s16": (-(2**15), 2**15 - 1),
    "b16": (-(2**15), 2**16 - 1),
    "u32": (-(2**31), 2**32 - 1),
    "s32": (-(2**31), 2**32 - 1),
    "b32": (-(2**31), 2**32 - 1),
    "u64": (-(2**63), 2**64 - 1),
    "s64": (-(2**63), 2**64 - 1),
    "b64": (-(2**63), 2**64 - 1),
}


def _description(value: Any) -> Any:
    """Give the TensorMapDescription of a TensorMap-like object, or None."""
    found = getattr(value, "description", value)
    return found if hasattr(found, "pack") else None


def map_array(value: Any, description: Any) -> np.ndarray | None:
    """Find the host array that a tensor map was made from."""
    for holder in (value, description):
        for name in ("array", "source", "tensor", "base", "owner"):
            found = getattr(holder, name, None)
            if isinstance(found, np.ndarray):
                return found
    return None


def argument_labels(names: Sequence[str], count: int) -> list[str]:
    """Give what messages call each parameter: its Python name, else its number."""
    if len(names) == count:
        return [f"argument {name!r}" for name in names]
    return [f"argument {number}" for number in range(count)]


def pack_arguments(machine: Any, function: Function, args: Any) -> np.ndarray:
    """Build the parameter buffer of a launch.

    Raises:
        EmulatorError: wrong number of arguments, a value that does not fit its parameter.
        TensorMapError: the PTX target does not have what a tensor map asks for.
    """
    args = list(args)
    target = machine.program.module.target
    params = function.params
    if len(args) != len(params):
        raise EmulatorError(
            f"kernel {function.name} takes {len(params)} parameters, got {len(args)} arguments"
        )
    labels = argument_labels(machine.argument_names, len(params))
    arrays: list[tuple[str, np.ndarray]] = []
    slots: list[tuple[int, int]] = []
    for number, value in enumerate(args):
        description = _description(value)
        if isinstance(value, np.ndarray):
            slots.append((number, len(arrays)))
            arrays.append((f"{labels[number]} ({_shape(value)})", value))
        elif description is not None:
            if target:
                tensormap_rules.check_target(description, parse_cc(target.split(",")[0]))
            host = map_array(value, description)
            if host is not None:
                slots.append((number, len(arrays)))
                arrays.append((f"tensor map of {labels[number]} ({_shape(host)})", host))
        elif hasattr(value, "__array_interface__") and not isinstance(value, np.generic):
            host = np.asarray(value)
            args[number] = host
            slots.append((number, len(arrays)))
            arrays.append((f"{labels[number]} ({_shape(host)})", host))
    addresses = machine.memory.add_arrays(arrays)
    place = {number: addresses[k] for number, k in slots}
    size = max((p.offset + p.size for p in params), default=0)
    buffer = np.zeros(size, np.uint8)
    for number, (parameter, value) in enumerate(zip(params, args, strict=True)):
        data = _encode(parameter, value, number, place, f"{labels[number]} of {function.name}")
        buffer[parameter.offset : parameter.offset + len(data)] = np.frombuffer(data, np.uint8)
    return buffer


def _shape(array: np.ndarray) -> str:
    return f"{array.dtype} {'x'.join(map(str, array.shape)) or 'scalar'}"


def _encode(
    parameter: Variable, value: Any, number: int, place: dict[int, int], label: str
) -> bytes:
    what = f"{label} (.{parameter.type} {parameter.name})"
    description = _description(value)
    if description is not None:
        if parameter.size != 128:
            raise EmulatorError(
                f"{what} has {parameter.size} bytes; a tensor map needs a by-value "
                f"parameter of 128 bytes"
            )
        if number not in place:
            raise EmulatorError(
                f"{what}: the tensor map does not know its array; make it from a "
                f"NumPy array or set `.array`"
            )
        data = description.pack(place[number])
        if len(data) != 128:
            raise EmulatorError(f"{what}: the packed map has {len(data)} bytes, not 128")
        return bytes(data)
    if isinstance(value, (bytes, bytearray, memoryview)):
        if len(value) != parameter.size:
            raise EmulatorError(f"{what} has {parameter.size} bytes, got {len(value)}")
        return bytes(value)
    if isinstance(value, np.ndarray):
        if value.ndim == 0 and parameter.size != 8:
            value = value[()]
        else:
            if parameter.size != 8:
                raise EmulatorError(f"{what} is not a pointer: it has {parameter.size} bytes")
            return place[number].to_bytes(8, "little")
    if value is None:
        if parameter.size != 8:
            raise EmulatorError(f"{what} is not a pointer, None has no meaning here")
        return bytes(8)
    if isinstance(value, np.void):
        data = value.tobytes()
        if len(data) != parameter.size:
            raise EmulatorError(f"{what} has {parameter.size} bytes, the record has {len(data)}")
        return data
    return _number(parameter, value, what)


def _number(parameter: Variable, value: Any, what: str) -> bytes:
    kind, size = parameter.type, parameter.size
    if isinstance(value, (complex, np.complexfloating)):
        data = np.asarray(value, "c8" if size == 8 else "c16").tobytes()
        if len(data) == size:
            return data
        raise EmulatorError(f"{what} cannot take a complex number")
    if kind in ("f32", "f64", "f16"):
        try:
            return np.asarray(value, {"f32": "f4", "f64": "f8", "f16": "f2"}[kind]).tobytes()
        except (TypeError, ValueError):
            raise EmulatorError(f"{what} takes a number, got {value!r}") from None
    if isinstance(value, (float, np.floating)) and kind.startswith("b"):
        return np.asarray(value, f"f{size}").tobytes()
    if getattr(getattr(value, "dtype", None), "kind", "") == "V":
        data = np.asarray(value).tobytes()
        if len(data) == size:
            return data
    if isinstance(value, (bool, np.bool_)):
        value = int(value)
    if not isinstance(value, (int, np.integer)):
        raise EmulatorError(
            f"{what} takes an integer, got {value!r} of type {type(value).__name__}"
        )
    low, high = _INT_RANGE.get(kind, (0, -1))
    if kind.startswith("u"):
        low = -(1 << (8 * size - 1))  # libNVVM declares signed parameters unsigned too
    if size > 8:
        raise EmulatorError(f"{what} has {size} bytes by value; pass bytes")
    if not low <= int(value) <= high:
        raise EmulatorError(f"{what} takes {low}..{high}, got {int(value)}")
    return (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")


__all__ = ["map_array", "owner_of", "pack_arguments"]
