// cuda::pipeline over memcpy_async (cp.async), warp reductions and atomics.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/pipeline>

namespace cg = cooperative_groups;
constexpr int STAGES = 2, THREADS = 128;

extern "C" __global__ void __launch_bounds__(THREADS)
    histogram_sums(const int4* in, int* bins, int* total, int chunks) {
  __shared__ int4 buffer[STAGES][THREADS];
  __shared__ int local[16];
  auto block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  if (threadIdx.x < 16) local[threadIdx.x] = 0;
  block.sync();
  auto pipeline = cuda::make_pipeline();
  const int4* mine = in + static_cast<size_t>(blockIdx.x) * chunks * THREADS + threadIdx.x;
  auto fetch = [&](int i) {
    pipeline.producer_acquire();
    if (i < chunks)
      cuda::memcpy_async(&buffer[i % STAGES][threadIdx.x], mine + i * THREADS,
                         cuda::aligned_size_t<16>(16), pipeline);
    pipeline.producer_commit();
  };
  fetch(0);
  int sum = 0;
  for (int i = 0; i < chunks; ++i) {
    fetch(i + 1);
    pipeline.consumer_wait();
    block.sync();
    const int4 v = buffer[i % STAGES][THREADS - 1 - threadIdx.x];
    sum += v.x + v.y + v.z + v.w;
    atomicAdd(&local[v.x & 15], 1);
    atomicAdd(&local[v.w & 15], 1);
    block.sync();
    pipeline.consumer_release();
  }
  sum = cg::reduce(warp, sum, cg::plus<int>());
  if (warp.thread_rank() == 0) atomicAdd(total, sum);
  block.sync();
  if (threadIdx.x < 16) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}
