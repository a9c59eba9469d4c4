"""Triton kernels whose PTX the emulator must run: matmuls, softmax, layer norm, reductions."""

import triton
import triton.language as tl


@triton.jit
def mm(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TF32: tl.constexpr):
    pm, pn = tl.program_id(0), tl.program_id(1)
    om, on, ok = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(
            a + om[:, None] * K + (ok + k)[None, :],
            mask=(om[:, None] < M) & ((ok + k)[None, :] < K), other=0.0,
        )  # fmt: skip
        y = tl.load(
            b + (ok + k)[:, None] * N + on[None, :],
            mask=((ok + k)[:, None] < K) & (on[None, :] < N), other=0.0,
        )  # fmt: skip
        acc = tl.dot(x, y, acc, input_precision=TF32)
    tl.store(
        c + om[:, None] * N + on[None, :], acc.to(c.dtype.element_ty),
        mask=(om[:, None] < M) & (on[None, :] < N),
    )  # fmt: skip


@triton.jit
def mm_tma(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, OUT: tl.constexpr):
    pm, pn = tl.program_id(0), tl.program_id(1)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([pm * BM, k]), b.load([pn * BN, k]).T, acc)
    c.store([pm * BM, pn * BN], acc.to(OUT))


@triton.jit
def mm_persistent(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, OUT: tl.constexpr,
    PROGRAMS: tl.constexpr, WS: tl.constexpr,
):  # fmt: skip
    tiles_n = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * tiles_n
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=not WS, warp_specialize=WS):
        m, n = tile // tiles_n * BM, tile % tiles_n * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(a.load([m, k]), b.load([n, k]).T, acc)
        c.store([m, n], acc.to(OUT))


@triton.jit
def mm_scaled(
    a, sa, b, sb, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, N: tl.constexpr,
    A_FORMAT: tl.constexpr, B_FORMAT: tl.constexpr, PACK_A: tl.constexpr, PACK_B: tl.constexpr,
    VECTOR: tl.constexpr,
):  # fmt: skip
    om, on = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    oka, okb = tl.arange(0, BK // PACK_A), tl.arange(0, BK // PACK_B)
    oks = tl.arange(0, BK // VECTOR)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(a + om[:, None] * (K // PACK_A) + (oka + k * (BK // PACK_A))[None, :])
        y = tl.load(b + on[None, :] * (K // PACK_B) + (okb + k * (BK // PACK_B))[:, None])
        x_scale = tl.load(sa + om[:, None] * (K // VECTOR) + (oks + k * (BK // VECTOR))[None, :])
        y_scale = tl.load(sb + on[:, None] * (K // VECTOR) + (oks + k * (BK // VECTOR))[None, :])
        acc = tl.dot_scaled(x, x_scale, A_FORMAT, y, y_scale, B_FORMAT, acc)
    tl.store(c + om[:, None] * N + on[None, :], acc)


@triton.jit
def softmax(x, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * n + i, (e / tl.sum(e, 0)).to(y.dtype.element_ty), mask=i < n)


@triton.jit
def layer_norm(x, w, b, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    mean = tl.sum(v, 0) / n
    centred = tl.where(i < n, v - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / n + 1e-5)
    weight, bias = tl.load(w + i, mask=i < n), tl.load(b + i, mask=i < n)
    tl.store(y + row * n + i, (centred * scale * weight + bias).to(y.dtype.element_ty), mask=i < n)


@triton.jit
def column_sums(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    om, on = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (om[:, None] < M) & (on[None, :] < N)
    v = tl.load(x + om[:, None] * N + on[None, :], mask=inside, other=0)
    tl.atomic_add(y + on, tl.sum(v, 0), mask=on < N)


@triton.jit
def histogram(x, y, n, B: tl.constexpr, BINS: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    h = tl.histogram(tl.load(x + i, mask=i < n, other=0), BINS, mask=i < n)
    tl.atomic_add(y + tl.arange(0, BINS), h)


@triton.jit
def attention(q, k, v, o, n, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    head = tl.program_id(1) * n * D
    om, od = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    x = tl.load(q + head + om[:, None] * D + od[None, :])
    top, total = tl.full((BM,), -float("inf"), tl.float32), tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for j in range(0, (tl.program_id(0) + 1) * BM, BN):
        on = j + tl.arange(0, BN)
        s = tl.dot(x, tl.load(k + head + on[None, :] * D + od[:, None])) * scale
        s = tl.where(om[:, None] >= on[None, :], s, -1.0e6)
        new = tl.maximum(top, tl.max(s, 1))
        p, fade = tl.exp2(s - new[:, None]), tl.exp2(top - new)
        y = tl.load(v + head + on[:, None] * D + od[None, :])
        acc = tl.dot(p.to(y.dtype), y, acc * fade[:, None])
        total, top = total * fade + tl.sum(p, 1), new
    tl.store(o + head + om[:, None] * D + od[None, :], acc / total[:, None])


@triton.jit
def mm_half(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    om, on, ok = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float16)
    for k in range(0, K, BK):
        x = tl.load(a + om[:, None] * K + (ok + k)[None, :])
        y = tl.load(b + (ok + k)[:, None] * N + on[None, :])
        acc = tl.dot(x, y, acc, out_dtype=tl.float16)
    tl.store(c + om[:, None] * N + on[None, :], acc)


@triton.jit
def descriptor_copy(x, y, D0, D1, D2, B0: tl.constexpr, B1: tl.constexpr, B2: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [D0, D1, D2], [D1 * D2, D2, 1], [B0, B1, B2])
    target = tl.make_tensor_descriptor(y, [D0, D1, D2], [D1 * D2, D2, 1], [B0, B1, B2])
    for i in range(tl.program_id(0) * B0, D0, tl.num_programs(0) * B0):
        for j in range(0, D1, B1):
            for k in range(0, D2, B2):
                target.store([i, j, k], source.load([i, j, k]) + 1)


@triton.jit
def gather_scatter(x, y, index, M, N, BN: tl.constexpr, ROWS: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [1, BN])
    target = tl.make_tensor_descriptor(y, [M, N], [N, 1], [1, BN])
    i = tl.load(index + tl.arange(0, ROWS))
    target.scatter(source.gather(i, tl.program_id(0) * BN) + 1, i ^ 1, tl.program_id(0) * BN)


@triton.jit
def stream_k(
    a, b, c, partial, locks, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    PROGRAMS: tl.constexpr,
):  # fmt: skip
    program, steps, tiles_n = tl.program_id(0), tl.cdiv(K, BK), tl.cdiv(N, BN)
    total = tl.cdiv(M, BM) * tiles_n * steps
    share = tl.cdiv(total, PROGRAMS)
    at, end = program * share, tl.minimum(program * share + share, total)
    inside = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    while at < end:
        tile = at // steps
        first = at - tile * steps
        last = tl.minimum(steps, first + end - at)
        om, on = tile // tiles_n * BM + tl.arange(0, BM), tile % tiles_n * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(first, last):
            ok = tl.arange(0, BK) + k * BK
            x = tl.load(a + om[:, None] * K + ok[None, :])
            acc = tl.dot(x, tl.load(b + ok[:, None] * N + on[None, :]), acc)
        if first != 0:
            tl.store(partial + program * BM * BN + inside, acc)
            tl.debug_barrier()
            tl.atomic_xchg(locks + program, 1, sem="release")
        else:
            done, other = last, program + 1
            while done < steps:
                while tl.atomic_cas(locks + other, 1, 1, sem="acquire") != 1:
                    pass
                tl.debug_barrier()
                acc += tl.load(partial + other * BM * BN + inside, cache_modifier=".cv")
                done, other = done + share, other + 1
            tl.store(c + om[:, None] * N + on[None, :], acc)
        at += last - first
