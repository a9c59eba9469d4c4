"""Helpers for tests, examples and benchmarks of kernels.

Inputs (`random_normal`), float64 references (`matmul_reference`), comparisons (`relative_error`,
`assert_close`), GPU memory without an array library (`DeviceArray`), interleaved timing
(`interleaved`, `host_time`), and `emulated` to run launches on the emulator.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from nbtc import driver, dtypes
from nbtc.arguments import view_of
from nbtc.device_array import DeviceArray
from nbtc.timing import (
    BenchmarkError,
    Comparison,
    Flush,
    bandwidth,
    host_time,
    interleaved,
    peak_bandwidth,
    sm_clock,
)

__all__ = [
    "BenchmarkError", "Comparison", "DeviceArray", "Flush", "assert_close", "bandwidth",
    "emulated", "example_arguments", "has_gpu", "host_time", "interleaved", "matmul_reference",
    "on_device", "peak_bandwidth", "random_normal", "relative_error", "run_example", "sm_clock",
    "to_numpy", "tolerance",
]  # fmt: skip

# Half a unit in the last place, and a little for the accumulation before the rounding.
_TOLERANCES = {
    "float64": 1e-12, "float32": 1e-5, "tfloat32": 6e-4, "float16": 6e-4, "bfloat16": 5e-3,
    "float8_e4m3fn": 0.07, "float8_e5m2": 0.14,
}  # fmt: skip


def has_gpu(capability: tuple[int, int] | None = None) -> bool:
    """Return whether there is a GPU, of exactly this compute capability if one is given."""
    if not driver.available():
        return False
    return capability is None or driver.compute_capability() == capability


@contextlib.contextmanager
def emulated(seed: int | None = None, completion: str | None = None) -> Iterator[None]:
    """Run the launches of this block on the emulator, also where there is a GPU.

    Kernels take NumPy arrays, in place, and raise `nbtc.errors.FindingsError` on findings.

    Args:
        seed: seed of the schedule; None leaves it.
        completion: when asynchronous work completes, ``"random"``, ``"earliest"`` or ``"latest"``;
            None leaves it.
    """
    wanted = {"NBTC_EMULATE": "1"}
    if seed is not None:
        wanted["NBTC_SEED"] = str(seed)
    if completion is not None:
        wanted["NBTC_COMPLETION"] = completion
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def random_normal(
    shape: int | Sequence[int], dtype: Any = "float32", seed: int = 0
) -> np.ndarray[Any, Any]:
    """Return standard normal numbers, rounded to ``dtype``; integers get 8-bit-sized values.

    Zeros, ones and small integers run at other clocks than real data: time with these.
    """
    found = dtypes.canonical(dtype)
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    if found.kind in ("int", "uint"):
        values = np.clip(np.rint(values * 32), -128 if found.kind == "int" else 0, 127)
    return values.astype(found.numpy)


def on_device(array: np.ndarray[Any, Any]) -> Any:
    """Return the array where kernels can use it: itself on the emulator, else a copy on the GPU."""
    from nbtc.jit import emulating

    return array if emulating() else DeviceArray.copy_of(array)


def to_numpy(array: Any) -> np.ndarray[Any, Any]:
    """Return an array of any library as NumPy memory (ml_dtypes for narrow floats)."""
    if isinstance(array, np.ndarray):
        return array
    for name in ("numpy", "copy_to_host", "get"):  # ours; Numba; CuPy
        method = getattr(array, name, None)
        if method is None:
            continue
        if type(array).__module__.startswith("torch"):
            return _torch_to_numpy(array)
        return method()
    return np.asarray(array)


def _torch_to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    import torch  # pyright: ignore[reportMissingImports]

    view = view_of(tensor)
    assert view is not None  # it is a tensor
    host = tensor.detach().cpu().contiguous()
    raw = host.flatten().view(torch.uint8).numpy()
    return raw.view(view.dtype).reshape(view.shape)


def matmul_reference(a: Any, b: Any) -> np.ndarray[Any, Any]:
    """Return ``a @ b`` in float64."""
    return to_numpy(a).astype(np.float64) @ to_numpy(b).astype(np.float64)


def tolerance(dtype: Any) -> float:
    """Return the relative error that rounding a result to ``dtype`` explains."""
    return _TOLERANCES.get(dtypes.canonical(dtype).name, 0.0)


def relative_error(got: Any, want: Any) -> float:
    """Return max |got - want| / max |want|, infinity where ``got`` is not finite but ``want`` is.

    The largest element is the scale, so that near-zero elements of a sum do not count for more
    than they are.
    """
    have = to_numpy(got).astype(np.float64)
    reference = to_numpy(want).astype(np.float64)
    if have.shape != reference.shape:
        raise AssertionError(f"shape {have.shape}, expected {reference.shape}")
    if have.size == 0:
        return 0.0
    if not np.array_equal(np.isfinite(have), np.isfinite(reference)):
        return float("inf")
    finite = np.isfinite(reference)
    worst = np.abs(have[finite] - reference[finite]).max(initial=0.0)
    scale = np.abs(reference[finite]).max(initial=0.0)
    return float(worst / scale) if scale else float(worst)


def assert_close(got: Any, want: Any, *, tol: float | None = None, what: str = "result") -> float:
    """Raise AssertionError unless the relative error is within ``tol``; show the worst element.

    Args:
        got: result, any library's array.
        want: reference, best in float64.
        tol: largest allowed `relative_error`; None takes `tolerance` of the result's dtype.
        what: name in the message.

    Returns:
        The relative error.
    """
    have = to_numpy(got)
    limit = tolerance(have.dtype) if tol is None else tol
    error = relative_error(have, want)
    if error <= limit:
        return error
    values, reference = have.astype(np.float64), to_numpy(want).astype(np.float64)
    with np.errstate(invalid="ignore"):
        off = np.abs(values - reference)
    off = np.where(np.isnan(off), np.inf, off)
    scale = np.abs(reference[np.isfinite(reference)]).max(initial=0.0) or 1.0
    wrong = int((off > limit * scale).sum())
    worst = tuple(int(i) for i in np.unravel_index(int(off.argmax()), off.shape))
    raise AssertionError(
        f"{what}: relative error {error:.3g} > {limit:.3g}; {wrong} of {off.size} elements are "
        f"off, worst at {worst}: got {values[worst]:.6g}, expected {reference[worst]:.6g}"
        + _advice()
    )


def _advice() -> str:
    """Return what the emulator advised about the last launch, for a result that is wrong."""
    from nbtc.jit import emulating, last_advice

    if not emulating() or not last_advice():
        return ""
    return "\nadvice about the last launch:\n" + "\n".join(f"  {one}" for one in last_advice())


def example_arguments(
    check: Callable[..., Any], argv: Sequence[str] | None = None
) -> argparse.Namespace:
    """Parse the command line of an example: its sizes, ``--emulate`` and ``--seed``.

    Args:
        check: function whose parameters, all with int or str defaults, become options.
        argv: arguments; None means those of the process.
    """
    parser = argparse.ArgumentParser(
        description=inspect.getdoc(inspect.getmodule(check)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, parameter in inspect.signature(check).parameters.items():
        default = parameter.default
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, type=type(default), default=default, help=f"default {default}")
    parser.add_argument("--emulate", action="store_true", help="emulate, also where there is a GPU")
    parser.add_argument("--seed", type=int, default=0, help="seed of the emulator's schedule")
    return parser.parse_args(argv)


def run_example(check: Callable[..., float], argv: Sequence[str] | None = None) -> None:
    """Run an example's ``check`` with the sizes of the command line, and say what was found.

    Without a GPU, or with ``--emulate``, the kernel runs on the emulator.

    Args:
        check: runs the kernel, raises unless the result is right, returns its relative error.
        argv: arguments; None means those of the process.
    """
    arguments = vars(example_arguments(check, argv))
    emulate, seed = arguments.pop("emulate"), arguments.pop("seed")
    emulate = emulate or not has_gpu()
    with emulated(seed) if emulate else contextlib.nullcontext():
        error = check(**arguments)
    sizes = ", ".join(f"{name}={value}" for name, value in arguments.items())
    where = f"emulator, seed {seed}, no findings" if emulate else driver.device_name()
    print(f"ok ({where}): {sizes}: relative error {error:.2g}")
