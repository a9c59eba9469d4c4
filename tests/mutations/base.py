"""A correct kernel with what is needed to run it, check it and change it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mutations.text import Text
from nbtc import arguments, emulator, testing
from nbtc.jit import flat_arguments

Check = Callable[[], float]
"""Raises unless the result is right."""

COPY = r"cp\.async\.bulk\.tensor.*\.shared::cluster\.global"
STORE = r"cp\.async\.bulk\.tensor.*\.global\.shared::cta"
TRY = r"mbarrier\.try_wait"
SYNC = r"bar(rier)?\.(cta\.)?sync"
ARRIVE = r"bar(rier)?\.(cta\.)?arrive"


@dataclass(frozen=True)
class Base:
    """A correct kernel.

    Attributes:
        name: short name.
        kernel: makes the kernel.
        launch: grid and block.
        data: gives fresh arguments and the check of the result.
        roles: role -> (pattern of the opcode, pattern of the Python line), and the first of every
            second site where one line initialises two kinds of barriers in turn.
        arch: target.
        rules: names of the rules to use, if not all that fit: large kernels take time.
    """

    name: str
    kernel: Callable[[], Any]
    launch: tuple[Any, int]
    data: Callable[[], tuple[tuple[Any, ...], Check]]
    roles: dict[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    arch: str = "sm_90a"
    rules: tuple[str, ...] = ()

    @functools.cached_property
    def compiled(self) -> tuple[Any, Any]:
        """Kernel and its PTX for the argument types."""
        kernel = self.kernel()
        types = arguments.types_of(self.data()[0])
        return kernel, kernel.compile(*types, arch=self.arch, notes="ignore")

    @functools.cached_property
    def text(self) -> Text:
        """The PTX as editable text."""
        return Text(self.compiled[1].ptx)

    def sites(self, role: str) -> list[Any]:
        """Sites of a role."""
        op, source, *step = self.roles[role]
        found = self.text.find(op, source)[slice(*map(int, step), None, 2) if step else slice(None)]
        assert found, f"{self.name}: no instruction for {role} {self.roles[role]}"
        return found

    def run(self, ptx: str | None = None, **options: Any) -> tuple[Any, Check]:
        """Run the kernel, or another text in its place; return the report and the check."""
        kernel, compiled = self.compiled
        args, check = self.data()
        report = emulator.launch(
            compiled.ptx if ptx is None else ptx, compiled.entry, grid=self.launch[0],
            block=self.launch[1], args=flat_arguments(args),
            cluster=kernel.options.cluster or (1, 1, 1),
            dynamic_smem=compiled.resources.dynamic_smem_bytes, **options,
        )  # fmt: skip
        return report, check


def equal(got: Any, want: Any) -> Check:
    """Return the check that a result is exact."""
    return lambda: testing.assert_close(got, want, tol=0)
