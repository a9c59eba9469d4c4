"""Models of the hardware units: pure NumPy functions on bytes, descriptors and register arrays.

A unit knows nothing of warps, scheduling, barriers or checks. Broken operand rules raise
`UnitFault`; its ``kind`` is a key of ``nbtc.emulator.findings.KINDS``, or ``"unmodelled"`` for a
legal form that is not modelled. Shared memory is a ``uint8`` array together with the absolute
shared address of its byte 0, because swizzles act on absolute addresses.
"""

from __future__ import annotations


class UnitFault(Exception):
    """An operand breaks a rule of the unit; the caller turns it into a finding.

    Attributes:
        kind: key of ``nbtc.emulator.findings.KINDS``, or ``"unmodelled"``.
        message: what was asked, the rule, and the right value.
    """

    def __init__(self, kind: str, message: str) -> None:
        """Store kind and message."""
        super().__init__(message)
        self.kind = kind
        self.message = message
