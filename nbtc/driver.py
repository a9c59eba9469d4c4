"""Thin, cached access to the CUDA driver through cuda.bindings; loads nothing until it is used."""

from __future__ import annotations

import functools
from typing import Any, NoReturn

from nbtc.errors import DriverError

_api: Any = None


def api() -> Any:
    """Return ``cuda.bindings.driver`` with the driver initialised.

    Raises:
        DriverError: there is no driver or no usable GPU on this machine.
    """
    if _api is None:
        _initialise()
    return _api


def _initialise() -> None:
    global _api  # noqa: PLW0603 - the one cached module
    module = _bindings()
    try:
        (status,) = module.cuInit(0)
    except Exception as error:  # cuda.bindings raises its own class when libcuda is absent
        raise DriverError(
            f"no CUDA driver on this machine ({error}). Compiling and the emulator need none; "
            "launching needs an NVIDIA driver"
        ) from error
    if int(status):
        raise DriverError(f"the CUDA driver did not start: {_describe(module, status)}")
    _api = module


def _bindings() -> Any:
    from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue]

    return driver


def available() -> bool:
    """Return whether a CUDA driver and at least one GPU can be used."""
    try:
        return device_count() > 0
    except DriverError:
        return False


def check(result: tuple[Any, ...], what: str) -> Any:
    """Unpack a cuda.bindings result: return its value(s), or raise for an error status.

    Args:
        result: what the binding returned, ``(status, *values)``.
        what: the call in words, for the error text.

    Raises:
        DriverError: the status is not ``CUDA_SUCCESS``.
    """
    status = result[0]
    if status:
        fail(status, what)
    values = result[1:]
    return values[0] if len(values) == 1 else (values or None)


def fail(status: Any, what: str) -> NoReturn:
    """Raise the error for a driver status."""
    raise DriverError(f"{what} failed: {_describe(_api or _bindings(), status)}")


def _describe(module: Any, status: Any) -> str:
    name = getattr(status, "name", str(status))
    try:
        code, text = module.cuGetErrorString(status)
    except Exception:  # no driver to ask
        return name
    return f"{name} ({text.decode()})" if not int(code) and text else name


@functools.cache
def device_count() -> int:
    """Return the number of GPUs."""
    return check(api().cuDeviceGetCount(), "counting the devices")


@functools.cache
def device(index: int) -> Any:
    """Return the driver's handle of a device."""
    return check(api().cuDeviceGet(index), f"opening device {index}")


@functools.cache
def attribute(index: int, name: str) -> int:
    """Return a device attribute, for example ``"MULTIPROCESSOR_COUNT"``."""
    key = getattr(api().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return check(api().cuDeviceGetAttribute(key, device(index)), f"reading attribute {name}")


def compute_capability(index: int = 0) -> tuple[int, int]:
    """Return the compute capability of a device, (9, 0) on Hopper."""
    return (
        attribute(index, "COMPUTE_CAPABILITY_MAJOR"),
        attribute(index, "COMPUTE_CAPABILITY_MINOR"),
    )


@functools.cache
def device_name(index: int = 0) -> str:
    """Return the marketing name of a device."""
    text = check(api().cuDeviceGetName(128, device(index)), "reading the device name")
    return text.split(b"\0")[0].decode()


def cuda_version() -> tuple[int, int]:
    """Return the highest CUDA version that the driver supports, (13, 0) for a 580 driver."""
    version = check(api().cuDriverGetVersion(), "reading the driver's CUDA version")
    return version // 1000, version % 1000 // 10


@functools.cache
def driver_version() -> str | None:
    """Return the version of the installed driver ("580.65.06"), or None where NVML is missing."""
    try:
        from cuda.bindings import nvml  # pyright: ignore[reportAttributeAccessIssue]

        nvml.init_v2()
        try:
            return nvml.system_get_driver_version()
        finally:
            nvml.shutdown()
    except Exception:  # no NVML: the version is informative only
        return None


def current_device() -> int:
    """Return the index of the device of the calling thread's context, making one if needed."""
    ensure_context()
    handle = check(api().cuCtxGetDevice(), "reading the current device")
    return int(handle)


def ensure_context(index: int = 0) -> None:
    """Give the calling thread the primary context of a device, unless it has a context already."""
    current = check(api().cuCtxGetCurrent(), "reading the current context")
    if not int(current):
        check(api().cuCtxSetCurrent(_primary(index)), f"using device {index}")


@functools.cache
def _primary(index: int) -> Any:
    # Kept for the life of the process, as the CUDA runtime does.
    what = f"making the context of device {index}"
    return check(api().cuDevicePrimaryCtxRetain(device(index)), what)


def synchronize() -> None:
    """Wait for all work of the current context."""
    ensure_context()
    check(api().cuCtxSynchronize(), "waiting for the device")
