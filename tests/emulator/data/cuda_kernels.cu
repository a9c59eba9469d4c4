#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/ptx>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;
using barrier = cuda::barrier<cuda::thread_scope_block>;

extern "C" __global__ void bulk(const float* in, float* out) {
  __shared__ alignas(128) float tile[1024];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ barrier bar;
  if (threadIdx.x == 0) {
    init(&bar, blockDim.x);
    ptx::fence_proxy_async(ptx::space_shared);
  }
  __syncthreads();
  barrier::arrival_token token;
  if (threadIdx.x == 0) {
    cuda::memcpy_async(tile, in + blockIdx.x * 1024, cuda::aligned_size_t<16>(sizeof(tile)), bar);
    token = bar.arrive();
  } else {
    token = bar.arrive();
  }
  bar.wait(std::move(token));
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) tile[i] = tile[i] * 2.f + 1.f;
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + blockIdx.x * 1024, tile,
                       sizeof(tile));
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
  }
}

struct alignas(64) Map { char bytes[128]; };

// A producer warp feeds a ring of TMA tiles to three consumer warps; the result leaves by TMA too.
extern "C" __global__ void tma_ring(const __grid_constant__ Map in, const __grid_constant__ Map out,
                                    int tiles) {
  constexpr int S = 3, ROWS = 8, COLS = 32;
  __shared__ alignas(128) int stage[S][ROWS][COLS];
  __shared__ alignas(128) int result[ROWS][COLS];
  __shared__ alignas(8) uint64_t full[S], empty[S];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < S; ++s) {
      ptx::mbarrier_init(&full[s], 1);
      ptx::mbarrier_init(&empty[s], 96);
    }
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    ptx::fence_proxy_async(ptx::space_shared);
  }
  __syncthreads();
  if (warp == 3) {
    if (lane == 0) {
      for (int t = 0; t < tiles; ++t) {
        int s = t % S, lap = t / S;
        while (!ptx::mbarrier_try_wait_parity(&empty[s], (lap & 1) ^ 1)) {}
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared,
                                       &full[s], sizeof(stage[0]));
        int32_t at[2] = {0, t * ROWS};
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, &stage[s], &in, at,
                                  &full[s]);
      }
    }
  } else {
    for (int t = 0; t < tiles; ++t) {
      int s = t % S, lap = t / S;
      while (!ptx::mbarrier_try_wait_parity(&full[s], lap & 1)) {}
      int mine[3] = {0, 0, 0};
      for (int k = 0, r = warp; r < ROWS; r += 3, ++k) mine[k] = stage[s][r][lane] * 3 + t;
      ptx::mbarrier_arrive(&empty[s]);
      if (t) {
        if (threadIdx.x == 0) ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
        asm volatile("bar.sync 1, 96;" ::: "memory");
      }
      for (int k = 0, r = warp; r < ROWS; r += 3, ++k) result[r][lane] = mine[k];
      ptx::fence_proxy_async(ptx::space_shared);
      asm volatile("bar.sync 1, 96;" ::: "memory");
      if (threadIdx.x == 0) {
        int32_t at[2] = {0, t * ROWS};
        ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &out, at, &result);
        ptx::cp_async_bulk_commit_group();
      }
    }
    if (threadIdx.x == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
  }
}

extern "C" __global__ void pipeline(const float* in, float* out, int tiles) {
  constexpr int S = 2;
  __shared__ float buf[S][128];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, S> state;
  auto block = cg::this_thread_block();
  auto p = cuda::make_pipeline(block, &state);
  for (int t = 0, f = 0; t < tiles; ++t) {
    for (; f < tiles && f < t + S; ++f) {
      p.producer_acquire();
      cuda::memcpy_async(block, buf[f % S], in + f * 128, sizeof(float) * 128, p);
      p.producer_commit();
    }
    p.consumer_wait();
    block.sync();
    out[t * 128 + threadIdx.x] = buf[t % S][127 - threadIdx.x];
    block.sync();
    p.consumer_release();
  }
}

extern "C" __global__ void groups(const int* in, int* out) {
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<8>(block);
  int v = in[block.thread_rank()];
  out[block.thread_rank()] = cg::inclusive_scan(tile, v);
  if (v & 1) {
    auto odd = cg::coalesced_threads();
    out[64 + block.thread_rank()] = odd.thread_rank() * 1000 + odd.size();
    out[128 + block.thread_rank()] = odd.shfl(v, 0);
  }
  out[192 + block.thread_rank()] = cg::reduce(tile, v, cg::greater<int>());
}

extern "C" __global__ void neighbours(int* out) {
  __shared__ int s[32];
  auto c = cg::this_cluster();
  s[threadIdx.x] = c.block_rank() * 100 + threadIdx.x;
  c.sync();
  int* other = c.map_shared_rank(s, c.block_rank() ^ 1);
  out[blockIdx.x * 32 + threadIdx.x] = other[31 - threadIdx.x];
  c.sync();
}

extern "C" __global__ void halves(const __half* a, const __half* b, const float* f, __half* o,
                                  __nv_bfloat16* bo, __nv_fp8_e4m3* q) {
  int i = threadIdx.x;
  __half2 x = __halves2half2(a[i], b[i]);
  __half2 y = __hfma2(x, x, x);
  o[i] = __hadd(__low2half(y), __high2half(y));
  __nv_bfloat16 v = __float2bfloat16(f[i]);
  bo[i] = __hmul(v, __float2bfloat16(1.5f));
  q[i] = __nv_fp8_e4m3(f[i]);
}

extern "C" __global__ void atomics(int* a, float* f, double* d, unsigned long long* u, __half2* h) {
  cuda::atomic_ref<int, cuda::thread_scope_device> r(a[0]);
  r.fetch_add(threadIdx.x, cuda::std::memory_order_acq_rel);
  atomicAdd(f, 1.5f);
  atomicAdd(d, 0.25);
  atomicMax(u, (unsigned long long)threadIdx.x);
  atomicAdd(h, __halves2half2(__half(1.f), __half(2.f)));
  atomicInc((unsigned*)a + 1, 10);
  if (atomicCAS(a + 2, 0, 7) == 0) atomicExch(a + 3, 99);
}

struct V { virtual __device__ int f(int x) { return x + 1; } };
struct W : V {
  int k;
  __device__ W(int k) : k(k) {}
  __device__ int f(int x) override { return x * k; }
};
__device__ __noinline__ int apply(V* v, int x) { return v->f(x); }
__device__ int powers[4] = {1, 10, 100, 1000};
__constant__ float weights[3] = {0.5f, 0.25f, 0.125f};
typedef int (*fn)(int);
__device__ __noinline__ int plus5(int x) { return x + 5; }
__device__ __noinline__ int times5(int x) { return x * 5; }
__device__ fn table[2] = {plus5, times5};
struct P { int a; double b; short c[3]; };

extern "C" __global__ void language(P p, int n, const int* in, int* out, float* real) {
  W w(n);
  V v;
  int i = threadIdx.x, x = in[i];
  out[i] = apply(&w, i) + apply(&v, i) + powers[i & 3];
  out[i + 32] = table[n & 1](i);
  out[i + 64] = (int)((long long)i * 123456789012345LL / (n + 1) % 1000003);
  switch (x % 7) {
    case 0: x += p.a; break;
    case 1: x -= 3; break;
    case 2: x *= 5; break;
    case 3: x ^= 0x55; break;
    case 4: x = __popc(x); break;
    case 5: x = __clz(x); break;
    default: x = (int)p.b + p.c[x % 3];
  }
  out[i + 96] = x;
  float s, c;
  sincosf(i * 0.1f, &s, &c);
  real[i] = s * c + powf(i * 0.5f, 1.3f) + expf(-i * 0.1f) + log1pf(i) + weights[i % 3];
  if (i == 3) printf("i=%d x=%d %s %.3f\n", i, x, "text", 2.5);
}
