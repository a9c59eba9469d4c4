"""Everything that touches numba-cuda's compiler: Python function in, LLVM text and PTX out.

numba-cuda's own entry points ask the current device for its capability and so need a driver. The
ones used here take the capability as an argument; nothing in this module loads the CUDA driver.
"""

from __future__ import annotations

import re
import types as pytypes
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.cuda import cgutils, compiler, dispatcher, lowering, types, utils
from numba.cuda.core import targetconfig
from numba.cuda.core.callconv import CUDACallConv
from numba.cuda.core.compiler_lock import global_compiler_lock
from numba.cuda.core.errors import NumbaDebugInfoWarning
from numba.cuda.cudadrv import nvvm
from numba.cuda.descriptor import cuda_target
from numba.cuda.flags import CUDAFlags

from nbtc.arch import Arch
from nbtc.constants_pass import Pipeline
from nbtc.errors import CompileError
from nbtc.ptx import target

_MAP_WORDS = ir.ArrayType(ir.IntType(64), 16)


@dataclass(frozen=True, slots=True)
class CodeOptions:
    """What shapes the code of a kernel and of every helper that it calls.

    Attributes:
        cc: compute capability with suffix, as numba-cuda passes it around: ``(9, 0, "a")``.
        lineinfo: emit ``.loc`` directives.
        fastmath: let LLVM and libNVVM reassociate, contract, and flush subnormals to zero.
    """

    cc: tuple[Any, ...]
    lineinfo: bool = True
    fastmath: bool = False

    @classmethod
    def for_arch(cls, arch: Arch, *, lineinfo: bool, fastmath: bool) -> CodeOptions:
        """Return the options for a target."""
        cc = (arch.major, arch.minor, arch.suffix) if arch.suffix else arch.cc
        return cls(cc, lineinfo, fastmath)

    @property
    def arch_name(self) -> str:
        """Name of the target, ``"sm_90a"``."""
        return "sm_" + "".join(str(part) for part in self.cc)


_options: ContextVar[CodeOptions | None] = ContextVar("nbtc_code_options", default=None)


def code_options() -> CodeOptions:
    """Return the options of the compilation that is running, by nbtc or by plain numba-cuda."""
    options = _options.get()
    if options is not None:
        return options
    flags = targetconfig.ConfigStack.top_or_none()
    if flags is None or getattr(flags, "compute_capability", None) is None:
        raise CompileError("a device function was compiled outside the compilation of a kernel")
    return CodeOptions(tuple(flags.compute_capability), bool(flags.debuginfo), bool(flags.fastmath))


class _TargetDevice:
    """Answers for the current device while nbtc compiles for some target."""

    def __init__(self, cc: tuple[Any, ...]) -> None:
        self.compute_capability = cc


_real_current_device = dispatcher.get_current_device


def _current_device() -> Any:
    options = _options.get()
    return _real_current_device() if options is None else _TargetDevice(options.cc)


# Overloads and cuda.jit(device=True) helpers ask this name of numba-cuda's dispatcher module for
# the capability to compile for, and so need a driver, even where the caller said what the target
# is.
dispatcher.get_current_device = _current_device

_real_def_line = lowering.get_func_def_lineno


def _def_line(function: Any) -> int | None:
    """Return the line of ``def``, also of a function whose body is only a docstring."""
    try:
        return _real_def_line(function)
    except IndexError:  # numba-cuda looks for a statement behind the docstring
        return None


lowering.get_func_def_lineno = _def_line


def compile_function(
    func: Callable[..., Any], args: tuple[Any, ...], options: CodeOptions, *, inline: bool
) -> Any:
    """Run numba-cuda's pipeline up to LLVM and return its compile result.

    Args:
        func: plain Python function.
        args: Numba argument types.
        options: target and code options, also seen by the helpers that ``func`` calls.
        inline: mark the function ``alwaysinline``.
    """
    token = _options.set(options)
    try:
        with target.compiling_for(options.arch_name):
            result = _run_pipeline(func, args, options, inline)
            if inline:
                # A helper may hold barriers: its calls must not be duplicated or moved into
                # branches before it is inlined.
                function = result.library.get_function(result.fndesc.llvm_func_name)
                function.attributes.add("convergent")
            return result
    finally:
        _options.reset(token)


@global_compiler_lock
def _run_pipeline(
    func: Callable[..., Any], args: tuple[Any, ...], options: CodeOptions, inline: bool
) -> Any:
    flags = CUDAFlags()
    flags.no_compile = True  # LLVM only
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    flags.error_model = "numpy"
    flags.nvvm_options = {"opt": 3, "fastmath": options.fastmath}
    flags.compute_capability = options.cc
    if options.lineinfo:
        flags.debuginfo = True
        flags.dbg_directives_only = True
    if options.fastmath:
        flags.fastmath = True
    if inline:
        flags.forceinline = True
    context = cuda_target.target_context
    with utils.numba_target_override(), warnings.catch_warnings():
        # Lambdas and functions of exec have no source text; their line numbers are still right.
        warnings.filterwarnings("ignore", category=NumbaDebugInfoWarning)
        result = compiler.compile_extra(
            typingctx=cuda_target.typing_context,
            targetctx=context,
            func=func,
            args=args,
            return_type=None if inline else types.void,
            flags=flags,
            locals={},
            pipeline_class=Pipeline,
            call_conv=CUDACallConv(context),
            abi_info={},
        )
    result.library.finalize()
    return result


@dataclass(frozen=True, slots=True)
class KernelBounds:
    """Performance directives of a kernel entry."""

    max_threads: int | None = None
    min_blocks: int = 1
    max_registers: int | None = None
    cluster: tuple[int, int, int] | None = None

    def annotations(self) -> list[tuple[str, int]]:
        """Return the ``nvvm.annotations`` entries that emit the directives."""
        entries: list[tuple[str, int]] = []
        if self.max_threads is not None:
            # ptxas drops setmaxnreg unless the minimum block count is there too (note C7508).
            entries += [("maxntidx", self.max_threads), ("minctasm", self.min_blocks)]
        if self.max_registers is not None:
            entries.append(("maxnreg", self.max_registers))
        if self.cluster is not None:
            entries += [(f"cluster_dim_{a}", n) for a, n in zip("xyz", self.cluster, strict=True)]
        return entries


@global_compiler_lock
def kernel_to_ptx(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    arch: Arch,
    options: CodeOptions,
    *,
    bounds: KernelBounds,
    entry: str,
) -> str:
    """Compile a kernel function to PTX text whose entry is called ``entry``."""
    result = compile_function(func, args, options, inline=False)
    library = result.library
    mangled = result.fndesc.llvm_func_name
    kernel = library.get_function(mangled)
    compiler.kernel_fixup(kernel, False)
    annotations = cgutils.get_or_insert_named_metadata(kernel.module, "nvvm.annotations")
    for name, value in bounds.annotations():
        _annotate(kernel, annotations, name, ir.Constant(ir.IntType(32), value))
    maps = [i for i, arg in enumerate(kernel.args) if arg.type == _MAP_WORDS.as_pointer()]
    if maps:
        # Without grid_constant libNVVM copies the parameter to local memory, which TMA cannot read.
        # It reads only the first such entry: one entry lists all parameters, counted from 1.
        numbers = [ir.Constant(ir.IntType(32), index + 1) for index in maps]
        _annotate(kernel, annotations, "grid_constant", kernel.module.add_metadata(numbers))
    modules = [_drop_variables(_drop_environment(text)) for text in library.llvm_strs]
    if maps:
        modules[0] = _pass_maps_by_value(modules[0], mangled, arch)
    ptx = _libnvvm(modules, arch, options)
    return _convert_once(ptx.replace(mangled, entry))


_PARAM_ADDRESS = re.compile(r"\bcvta\.param\.u64(\s+)(%\w+), (%\w+);")


def _convert_once(ptx: str) -> str:
    """Undo the second of two conversions of a parameter's address to a generic one.

    Once a process has compiled anything with debug information, libNVVM 13.5 converts the address
    of a parameter passed by value twice on sm_100 and later, which no longer is its address.
    """
    converted = {match[2] for match in _PARAM_ADDRESS.finditer(ptx)}

    def once(match: re.Match[str]) -> str:
        if match[3] not in converted:
            return match[0]
        return f"mov.b64{match[1]}{match[2]}, {match[3]};"

    return _PARAM_ADDRESS.sub(once, ptx)


def _annotate(kernel: Any, annotations: Any, name: str, value: Any) -> None:
    module = kernel.module
    annotations.add(module.add_metadata((kernel, ir.MetaDataString(module, name), value)))


_MAP_TEXT = r"\[16 x i64\]\*"


def _pass_maps_by_value(text: str, mangled: str, arch: Arch) -> str:
    """Write ``byval`` on the pointers to tensor maps in the kernel's own definition."""
    word = "byval" if arch.major < 10 else "byval([16 x i64])"
    start = text.index(f'define void @"{mangled}"(')
    end = text.index("\n", start)
    line = re.sub(_MAP_TEXT, rf"[16 x i64]* {word} align 64", text[start:end])
    return text[:start] + line + text[end:]


_ENVIRONMENT = re.compile(r'^(@"_ZN08NumbaEnv[^"]*") = common global i8\* null\n', re.MULTILINE)


def _drop_environment(text: str) -> str:
    """Remove Numba's per-function environment variables, which no device code reads."""
    for match in list(_ENVIRONMENT.finditer(text)):
        if text.count(match[1]) == 1:
            text = text.replace(match[0], "", 1)
    return text


_VARIABLES = re.compile(r'^ *call void @"?llvm\.dbg\.(?:value|declare)"?\(.*\n', re.MULTILINE)


def _drop_variables(text: str) -> str:
    """Remove debug information of variables; that of lines stays.

    PTX has no place for it, and libNVVM 13.5 refuses some kernels with it: "Symbol name with
    unsupported characters".
    """
    return _VARIABLES.sub("", text)


def _libnvvm(modules: list[str], arch: Arch, options: CodeOptions) -> str:
    settings: dict[str, Any] = {"arch": arch.compute, "opt": 3}
    if options.fastmath:
        settings |= {"ftz": True, "fma": True, "prec_div": False, "prec_sqrt": False}
    unit = nvvm.CompilationUnit(settings)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=nvvm.NvvmWarning)
        try:
            for module in modules:
                unit.add_module(nvvm.llvm_replace(module).encode())
            unit.verify()
            # libdevice does not pass the verifier, and is read only where it is used.
            unit.lazy_add_module(nvvm.LibDevice().get())
            ptx: Any = unit.compile()
        except nvvm.nvvmError as error:
            raise CompileError(f"libNVVM refused the module: {unit.get_log() or error}") from error
    return ptx.decode().strip("\x00").strip() + "\n"


def insert_device_function(key: object, result: Any) -> None:
    """Make a compiled helper callable, under ``key``, from code that is lowered later."""
    cuda_target.target_context.insert_user_function(key, result.fndesc, [result.library])


def remove_device_function(key: object) -> None:
    """Forget a helper that :func:`insert_device_function` added."""
    cuda_target.target_context.remove_user_function(key)


def open_keywords(func: pytypes.FunctionType) -> pytypes.FunctionType:
    """Return ``func`` with its keyword-only parameters made positional too.

    Numba's call folding cannot handle keyword-only parameters. They follow the positional ones in a
    code object, so that only the counts change; bytecode and line table stay.
    """
    code = func.__code__
    if code.co_kwonlyargcount == 0:
        return func
    if code.co_flags & 0x04:
        raise CompileError(
            f"{func.__qualname__}: *args together with keyword-only parameters is not supported"
        )
    count = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[:count]
    keyword_defaults = func.__kwdefaults__ or {}
    defaults = list(func.__defaults__ or ())
    for name in names[code.co_argcount :]:
        if name in keyword_defaults:
            defaults.append(keyword_defaults[name])
        elif defaults:
            raise CompileError(
                f"{func.__qualname__}: keyword-only parameter {name!r} needs a default, because an "
                "earlier parameter has one"
            )
    opened = pytypes.FunctionType(
        code.replace(co_argcount=count, co_kwonlyargcount=0),
        func.__globals__,
        func.__name__,
        tuple(defaults) or None,
        func.__closure__,
    )
    opened.__qualname__ = func.__qualname__
    opened.__module__ = func.__module__
    opened.__doc__ = func.__doc__
    return opened
