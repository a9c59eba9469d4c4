"""Make the PTX of this folder: ``python triton_kernels.py FOLDER`` (needs triton 3.9, no GPU).

The folder holds the PTX that Triton 3.9 makes from these kernels, without its debug sections.
"""

import gzip
import sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile


@triton.jit
def mm(a, b, c, M, N, K, sam, sbk, scm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm, pn = tl.program_id(0), tl.program_id(1)
    om, on, ok = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN), tl.arange(0, BK)
    ap = a + om[:, None] * sam + ok[None, :]
    bp = b + ok[:, None] * sbk + on[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(ap, mask=(om[:, None] < M) & (ok[None, :] + k < K), other=0.0)
        y = tl.load(bp, mask=(ok[:, None] + k < K) & (on[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc)
        ap += BK
        bp += BK * sbk
    tl.store(
        c + om[:, None] * scm + on[None, :],
        acc.to(c.dtype.element_ty),
        mask=(om[:, None] < M) & (on[None, :] < N),
    )


@triton.jit
def attn(q, k, v, o, N, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    om, od = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    queries = tl.load(q + om[:, None] * D + od[None, :])
    m = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for s in range(0, N, BN):
        on = s + tl.arange(0, BN)
        scores = tl.dot(queries, tl.load(k + on[None, :] * D + od[:, None]))
        high = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp(scores - high[:, None])
        scale = tl.exp(m - high)
        total = total * scale + tl.sum(p, 1)
        values = tl.load(v + on[:, None] * D + od[None, :])
        acc = tl.dot(p.to(values.dtype), values, acc * scale[:, None])
        m = high
    tl.store(o + om[:, None] * D + od[None, :], acc / total[:, None])


@triton.jit
def reduce(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(y, tl.sum(v, 0))
    tl.atomic_max(y + 1, tl.max(v, 0))
    tl.store(y + 8 + i, tl.cumsum(v, 0), mask=i < n)
    tl.store(y + 8 + n + i, tl.sort(v), mask=i < n)


MM = dict.fromkeys(("M", "N", "K", "sam", "sbk", "scm"), "i32")
KERNELS = {
    **{
        f"mm_{name}_64x64x32_{cc}": (
            mm,
            {"a": f"*{t}", "b": f"*{t}", "c": "*fp32", **MM},
            {"BM": 64, "BN": 64, "BK": 32},
            cc,
        )
        for name, t, cc in (
            ("bf16", "bf16", 90),
            ("fp32", "fp32", 90),
            ("e4m3", "fp8e4nv", 100),
            ("fp16", "fp16", 100),
        )
    },
    **{
        f"attn_{cc}": (
            attn,
            {"q": "*fp16", "k": "*fp16", "v": "*fp16", "o": "*fp32", "N": "i32"},
            {"BM": 64, "BN": 64, "D": 64},
            cc,
        )
        for cc in (90, 100)
    },
    "reduce_90": (reduce, {"x": "*i32", "y": "*i32", "n": "i32"}, {"B": 256}, 90),
}


def main(folder: str) -> None:
    for name, (function, signature, constants, cc) in KERNELS.items():
        source = ASTSource(
            function,
            signature={**signature, **dict.fromkeys(constants, "constexpr")},
            constexprs=constants,
        )
        options = {"num_warps": 4, "num_stages": 3 if name.startswith("mm") else 2}
        kernel = compile(source, target=GPUTarget("cuda", cc, 32), options=options)
        text = kernel.asm["ptx"].split(".section")[0]
        with gzip.GzipFile(Path(folder) / f"{name}.ptx.gz", "wb", mtime=0) as file:
            file.write(text.encode())
        print(name, "dynamic shared memory", kernel.metadata.shared)


if __name__ == "__main__":
    main(sys.argv[1])
