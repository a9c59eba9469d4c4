// TMA tile in, changed by the threads, TMA tile out: cuda::ptx from end to end.
#include <cuda.h>
#include <cuda/ptx>

namespace ptx = cuda::ptx;
constexpr int ROWS = 32, COLUMNS = 32;

extern "C" __global__ void __launch_bounds__(128) scale_tiles(const __grid_constant__ CUtensorMap in,
                                                              const __grid_constant__ CUtensorMap out,
                                                              float factor, int tiles_y) {
  __shared__ alignas(128) float tile[2][ROWS][COLUMNS];
  __shared__ alignas(8) uint64_t full[2];
  const int x = blockIdx.x * COLUMNS;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full[0], 1);
    ptx::mbarrier_init(&full[1], 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  __syncthreads();
  auto load = [&](int i) {
    const int32_t at[2] = {x, i * ROWS};
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[i & 1],
                                   sizeof(tile[0]));
    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, &tile[i & 1], &in, at,
                              &full[i & 1]);
  };
  if (threadIdx.x == 0) load(0);
  for (int i = 0; i < tiles_y; ++i) {
    const int slot = i & 1;
    if (threadIdx.x == 0 && i + 1 < tiles_y) {
      // The other slot is stored from: wait until that store has read it.
      ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
      load(i + 1);
    }
    while (!ptx::mbarrier_try_wait_parity(&full[slot], (i >> 1) & 1)) {
    }
    for (int k = threadIdx.x; k < ROWS * COLUMNS; k += blockDim.x)
      tile[slot][k / COLUMNS][k % COLUMNS] = factor * tile[slot][k / COLUMNS][k % COLUMNS] + i;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
      const int32_t at[2] = {x, i * ROWS};
      ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &out, at, &tile[slot]);
      ptx::cp_async_bulk_commit_group();
    }
  }
  if (threadIdx.x == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
}
