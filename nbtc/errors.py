"""Exceptions of nbtc: every one says what was asked, the rule, and the right value."""

from __future__ import annotations


class NbtcError(Exception):
    """Base class of all errors raised by nbtc."""


class ArchError(NbtcError, ValueError):
    """A target is unknown, or an instruction does not exist on the chosen target."""


class DtypeError(NbtcError, TypeError):
    """A dtype is unknown or not usable in this place."""


class LayoutError(NbtcError, ValueError):
    """A layout, descriptor or shared-memory plan breaks a rule of the hardware."""


class TensorMapError(NbtcError, ValueError):
    """A tensor map breaks a rule of ``cuTensorMapEncodeTiled``."""


class InstructionError(NbtcError, TypeError):
    """An operand or modifier of a PTX instruction is not legal."""


class CompileError(NbtcError, RuntimeError):
    """A kernel did not compile, or compiled into something it must not be (ptxas notes)."""


class VersionError(CompileError):
    """Installed tool versions do not fit together."""


class LaunchError(NbtcError, ValueError):
    """A launch was refused before it reached the driver."""


class DriverError(NbtcError, RuntimeError):
    """There is no CUDA driver, or one of its calls failed."""


class EmulatorError(NbtcError, RuntimeError):
    """A call of the emulator is wrong, or an instruction is not modelled."""


class EmulatorWarning(UserWarning):
    """A launch on the emulator had no finding, but something risky or contested."""


class FindingsError(NbtcError, AssertionError):
    """The emulator found faults; the message lists them."""
