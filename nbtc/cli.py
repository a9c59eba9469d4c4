"""The command line: ``python -m nbtc demo``, ``check``, ``doctor`` and ``reference``.

Exit status: 0 all is well, 1 something is wrong (a finding, a wrong result, a compile error, a
problem of the installation), 2 the command was not usable.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import nbtc
from nbtc.errors import NbtcError


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status.

    Args:
        argv: arguments without the program's name; None takes those of the process.
    """
    options = _parser().parse_args(None if argv is None else list(argv))
    try:
        return options.run(options)
    except NbtcError as error:
        print(f"nbtc {options.command}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"nbtc {options.command}: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nbtc", description="Hopper and Blackwell GPU kernels in Numba's Python syntax."
    )
    parser.add_argument("--version", action="version", version=f"nbtc {nbtc.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="compile the pipelined GEMM, run it and check it")
    demo.add_argument(
        "--arch", action="append", metavar="TARGET", help="compile for this target only; repeatable"
    )
    demo.add_argument(
        "--size", type=_positive, metavar="N", help="multiply N x N matrices; default: by machine"
    )
    demo.set_defaults(run=_demo)

    check = commands.add_parser("check", help="run a script on the emulator and print every report")
    check.add_argument(
        "--seed", type=int, default=None, help="seed of the schedule (default: NBTC_SEED, or 0)"
    )
    check.add_argument(
        "--completion", choices=("random", "earliest", "latest"), default=None,
        help="when asynchronous work completes (default: NBTC_COMPLETION, or random)",
    )  # fmt: skip
    check.add_argument("file", metavar="FILE.py", help="script to run")
    check.add_argument("args", nargs=argparse.REMAINDER, help="arguments of the script")
    check.set_defaults(run=_check)

    doctor = commands.add_parser("doctor", help="examine the installation and the GPU")
    doctor.set_defaults(run=_doctor)

    reference = commands.add_parser("reference", help="write the reference pages")
    reference.add_argument("--check", action="store_true", help="only compare with the pages")
    reference.add_argument("--output", metavar="FOLDER", help="default: docs")
    reference.set_defaults(run=_reference)
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


# Each command loads only what it needs: `nbtc --version` must not wait for a compiler.


def _demo(options: argparse.Namespace) -> int:
    from nbtc import demo

    return demo.main(options.arch, options.size)


def _check(options: argparse.Namespace) -> int:
    from nbtc import check

    return check.main(options.file, options.args, options.seed, options.completion)


def _doctor(options: argparse.Namespace) -> int:
    from nbtc import doctor

    return doctor.main()


def _reference(options: argparse.Namespace) -> int:
    from nbtc import reference

    check = ["--check"] if options.check else []
    return reference.main([*check, *(["--output", options.output] if options.output else [])])
