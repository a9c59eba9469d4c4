// A cluster of two: one multicast load for both, then each adds the peer's tile through DSMEM.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda/ptx>

namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;
constexpr int ROWS = 16, COLUMNS = 32;

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128)
    exchange(const __grid_constant__ CUtensorMap in, float* out, int rounds) {
  __shared__ alignas(128) float tile[2][ROWS][COLUMNS];
  __shared__ alignas(8) uint64_t full;
  __shared__ float mine[ROWS * COLUMNS];
  cg::cluster_group cluster = cg::this_cluster();
  const unsigned rank = cluster.block_rank();
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  cluster.sync();
  const float* peer = cluster.map_shared_rank(mine, rank ^ 1);
  for (int i = 0; i < rounds; ++i) {
    if (threadIdx.x == 0) {
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full,
                                     sizeof(tile));
      // Each block loads one of the two tiles into both.
      const int32_t at[2] = {static_cast<int32_t>(rank) * COLUMNS, i * ROWS};
      ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, &tile[rank], &in, at, &full,
                                static_cast<uint16_t>(3));
    }
    while (!ptx::mbarrier_try_wait_parity(&full, i & 1)) {
    }
    for (int k = threadIdx.x; k < ROWS * COLUMNS; k += blockDim.x)
      mine[k] = (rank + 1) * tile[0][k / COLUMNS][k % COLUMNS] - tile[1][k / COLUMNS][k % COLUMNS];
    cluster.sync();
    float* to = out + ((blockIdx.x / 2 * rounds + i) * 2 + rank) * ROWS * COLUMNS;
    for (int k = threadIdx.x; k < ROWS * COLUMNS; k += blockDim.x) to[k] = mine[k] + 10 * peer[k];
    cluster.sync();
  }
}
