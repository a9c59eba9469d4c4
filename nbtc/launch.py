"""Launch compiled kernels: packed and cached arguments, clusters, big shared memory, PDL.

How the layers meet (``nbtc.jit`` is the caller):

``Launchable``
    What the launcher needs of a compiled kernel (``nbtc.compile.Compiled`` has it): ``cubin``
    (bytes), ``entry`` (symbol), ``arch`` ("sm_90a"), ``argument_types`` (tuple of Numba types, one
    per Python argument of the kernel) and ``resources`` with ``registers``, ``static_smem_bytes``
    and ``dynamic_smem_bytes``.

``LaunchOptions``
    Options of the kernel that shape its launch: cluster, launch bounds, programmatic dependent
    launch, non-portable cluster sizes, cooperative launch. Frozen and hashable.

``LaunchPlan(compiled, options, names=None)``
    One per compiled specialisation; keep it. Owns the packed parameter block, the loaded module and
    the launch attributes. ``names`` are the Python parameter names, for error texts.
    ``plan.launch(config, args)`` launches.

``Configured(kernel, grid, block, stream=None, dynamic_smem_bytes=None)``
    What ``kernel[grid, block, stream]`` returns. Callable, reusable, and the fast path: it looks the
    argument kinds up in its own table of plans and asks ``kernel.plan_for(args)`` only for kinds it
    has not seen. ``plan_for`` computes ``arguments.types_of(args)``, compiles, and returns a
    ``LaunchPlan`` (the same object for the same types).

``launch(compiled, options, grid, block, stream, args)``
    The plain function: no table kept by the caller, plans are cached on ``compiled``.

The grid is counted in blocks, also with clusters, as in CUDA C and Numba. ``stream=None`` or 0 is the
legacy default stream; see ``nbtc.streams`` for what else is taken.
"""

from __future__ import annotations
