"""Compiled kernels on disk: one file each, named by a hash of everything that shaped it.

Files are written under a temporary name and renamed, so that concurrent writers and readers never
see half a file; a file that does not check out is a miss. The folder is ``NBTC_CACHE_DIR``, or
``nbtc`` in ``XDG_CACHE_HOME`` or ``~/.cache``; an empty ``NBTC_CACHE_DIR`` turns the cache off.
Nothing here is ever unpickled.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MAGIC = b"nbtc1\n"


@dataclass(frozen=True, slots=True)
class Entry:
    """What is kept of one kernel."""

    meta: dict[str, Any]
    ptx: str
    cubin: bytes


def folder() -> Path | None:
    """Return the cache folder, or None if the cache is off."""
    given = os.environ.get("NBTC_CACHE_DIR")
    if given is not None:
        return Path(given).expanduser() if given else None
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "nbtc"


def key_of(parts: list[str]) -> str:
    """Return the hash under which a kernel with these properties is kept."""
    return hashlib.sha256(
        "\0".join([*_environment(), *parts]).encode("utf-8", "replace")
    ).hexdigest()


@functools.cache
def _environment() -> tuple[str, ...]:
    """Return the versions of everything between the Python function and the machine code."""
    names = ("numba-cuda", "numba", "llvmlite", "nvidia-nvvm", "numpy", "ml_dtypes")
    versions = []
    for name in names:
        try:
            versions.append(f"{name}={importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{name}=none")
    return (f"python={sys.version_info[:3]}", *versions, f"nbtc={_own_code()}")


def _own_code(here: Path = Path(__file__).parent) -> str:
    """Hash nbtc's own modules that turn Python into PTX; a version number misses edits to them.

    What a kernel refers to is followed through functions, but not into the methods of classes, with
    which staged functions of ``device`` and ``layout`` work.

    Args:
        here: the package's folder.
    """
    files = [f for part in ("ptx", "device", "layout") for f in sorted(here.glob(f"{part}/*.py"))]
    names = (
        "dtypes",
        "numba_compat",
        "constants_pass",
        "compile",
        "device_function",
        "notes",
        "ptxas",
        "fingerprint",
        "cache",
    )
    files += [here / f"{name}.py" for name in names]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.relative_to(here).as_posix().encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def load(key: str) -> Entry | None:
    """Return the kernel kept under ``key``, or None."""
    path = _path(key)
    return None if path is None else read(path)


def store(key: str, entry: Entry) -> None:
    """Keep a kernel under ``key``; a folder that cannot be written to is no error."""
    path = _path(key)
    if path is None:
        return
    with contextlib.suppress(OSError):
        write(path, entry)


def read(path: Path) -> Entry | None:
    """Return the kernel in a file, or None if there is no whole one."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    body = data[len(_MAGIC) + 65 :]
    digest = data[len(_MAGIC) : len(_MAGIC) + 64]
    if not data.startswith(_MAGIC) or hashlib.sha256(body).hexdigest().encode() != digest:
        return None
    head, _, rest = body.partition(b"\n")
    meta = json.loads(head)
    size = meta.pop("ptx_bytes")
    return Entry(meta, rest[:size].decode(), rest[size:])


def write(path: Path, entry: Entry) -> None:
    """Write a kernel to a file, whole or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    ptx = entry.ptx.encode()
    head = json.dumps({**entry.meta, "ptx_bytes": len(ptx)}).encode()
    body = head + b"\n" + ptx + entry.cubin
    data = _MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except OSError:
        os.unlink(name)
        raise


def _path(key: str) -> Path | None:
    base = folder()
    return None if base is None else base / key[:2] / f"{key}.nbtc"
