"""Stream handles from every library's stream object.

nbtc launches on the stream that it is given. With none it uses the legacy default stream, as Numba
and CUDA C do, not the "current stream" of some framework: pass ``torch.cuda.current_stream()`` (or
``current_torch_stream()``) inside ``torch.cuda.stream(...)`` and ``torch.cuda.graph(...)``.
"""

from __future__ import annotations

import sys
from typing import Any

from nbtc.errors import LaunchError

LEGACY = 0
"""Handle of the legacy default stream."""

PER_THREAD = 2
"""Handle of the per-thread default stream (CU_STREAM_PER_THREAD)."""


def handle(stream: Any) -> int:
    """Return the driver's handle of a stream.

    Args:
        stream: None or 0 (legacy default stream), an integer handle, or a stream of Numba, torch,
            CuPy, cuda.core or cuda.bindings; anything with the ``__cuda_stream__`` protocol.

    Raises:
        LaunchError: the object is no stream.
    """
    if stream is None:
        return LEGACY
    if isinstance(stream, int) and not isinstance(stream, bool):
        if stream < 0:
            raise LaunchError(f"stream={stream}: a stream handle is not negative")
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        # (version, handle); early implementations made it a property.
        pair: Any = protocol() if callable(protocol) else protocol
        return int(pair[1])
    for name in ("cuda_stream", "ptr"):  # torch; CuPy
        value = getattr(stream, name, None)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    if type(stream).__name__ in ("CUstream", "cudaStream_t", "Stream"):  # cuda.bindings; old Numba
        return int(getattr(stream, "handle", stream))
    raise LaunchError(
        f"stream={stream!r} is not a stream: pass 0, an integer handle, a stream of Numba, torch, "
        "CuPy or cuda.core, or an object with __cuda_stream__"
    )


def current_torch_stream(device: int | None = None) -> int:
    """Return the handle of torch's current stream, 0 where torch is not loaded.

    Args:
        device: device index; None means torch's current device.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return LEGACY
    index = torch.cuda.current_device() if device is None else device
    # The public torch.cuda.current_stream() builds an object and takes 4 us.
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if raw is not None:
        return raw(index)
    return torch.cuda.current_stream(index).cuda_stream
