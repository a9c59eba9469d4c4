// Producer and consumers over a ring of cuda::barrier, filled by memcpy_async_tx (bulk copies).
#include <cuda/barrier>
#include <cuda/ptx>
#include <cuda/std/utility>

using barrier = cuda::barrier<cuda::thread_scope_block>;
constexpr int STAGES = 3, LENGTH = 256;

extern "C" __global__ void __launch_bounds__(160) ring_sums(const float* in, float* out, int chunks) {
  __shared__ alignas(128) float data[STAGES][LENGTH];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ barrier full[STAGES], empty[STAGES];
  const int consumers = 128;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      init(&full[s], 1 + consumers);
      init(&empty[s], 1 + consumers);
    }
    cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
  }
  __syncthreads();
  const float* row = in + static_cast<size_t>(blockIdx.x) * chunks * LENGTH;
  if (threadIdx.x >= consumers) {
    if (threadIdx.x == consumers) {
      for (int i = 0; i < chunks; ++i) {
        const int s = i % STAGES;
        empty[s].wait(empty[s].arrive());
        cuda::device::memcpy_async_tx(data[s], row + i * LENGTH, cuda::aligned_size_t<16>(LENGTH * 4),
                                      full[s]);
        (void)cuda::device::barrier_arrive_tx(full[s], 1, LENGTH * 4);
      }
    }
  } else {
    for (int s = 0; s < STAGES; ++s) (void)empty[s].arrive();
    float sum = 0;
    for (int i = 0; i < chunks; ++i) {
      const int s = i % STAGES;
      full[s].arrive_and_wait();
      sum += data[s][threadIdx.x] * data[s][LENGTH - 1 - threadIdx.x];
      (void)empty[s].arrive();
    }
    out[blockIdx.x * consumers + threadIdx.x] = sum;
  }
}
