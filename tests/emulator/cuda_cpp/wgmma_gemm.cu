// C = A B^T in bf16: a producer warp with TMA, one consumer warpgroup with wgmma by inline asm.
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_bf16.h>

namespace ptx = cuda::ptx;
constexpr int M = 64, N = 32, K = 64, STAGES = 2;

__device__ uint64_t descriptor(const void* tile) {
  const uint64_t address = static_cast<uint64_t>(__cvta_generic_to_shared(tile));
  return (address & 0x3FFFF) >> 4 | uint64_t(1) << 16 | uint64_t(64) << 32 | uint64_t(1) << 62;
}

__device__ void mma(float (&d)[16], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, 0, 0; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),
        "+f"(d[15])
      : "l"(a), "l"(b), "r"(accumulate));
}

extern "C" __global__ void __launch_bounds__(160)
    gemm(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
         float* c, int m, int n, int k) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto* a = reinterpret_cast<__nv_bfloat16*>(memory);
  auto* b = a + STAGES * M * K;
  __shared__ alignas(8) uint64_t full[STAGES], empty[STAGES];
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      ptx::mbarrier_init(&full[s], 1);
      ptx::mbarrier_init(&empty[s], 128);
    }
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  __syncthreads();
  const int tiles_n = n / N, tiles = m / M * tiles_n, blocks = k / K;
  if (threadIdx.x >= 128) {
    if (threadIdx.x != 128) return;
    int step = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)
      for (int i = 0; i < blocks; ++i, ++step) {
        const int s = step % STAGES;
        while (!ptx::mbarrier_try_wait_parity(&empty[s], (step / STAGES & 1) ^ 1)) {
        }
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[s],
                                       (M + N) * K * 2);
        const int32_t from_a[2] = {i * K, tile / tiles_n * M}, from_b[2] = {i * K, tile % tiles_n * N};
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, a + s * M * K, &a_map, from_a,
                                  &full[s]);
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, b + s * N * K, &b_map, from_b,
                                  &full[s]);
      }
    return;
  }
  int step = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    float d[16] = {};
    for (int i = 0; i < blocks; ++i, ++step) {
      const int s = step % STAGES;
      while (!ptx::mbarrier_try_wait_parity(&full[s], step / STAGES & 1)) {
      }
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      for (int j = 0; j < K / 16; ++j)
        mma(d, descriptor(a + s * M * K + 16 * j), descriptor(b + s * N * K + 16 * j), i + j);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      ptx::mbarrier_arrive(&empty[s]);
    }
    const int row = tile / tiles_n * M + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    const int column = tile % tiles_n * N + threadIdx.x % 4 * 2;
    for (int j = 0; j < 16; ++j)
      c[(row + j / 2 % 2 * 8) * n + column + j / 4 * 8 + j % 2] = d[j];
  }
}
