// What C++ brings along: function tables, virtual functions, recursion, switch tables, local arrays,
// 128-bit integers, and an atomic built from compare-and-swap.

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ __noinline__ int plus(int a, int b) { return a + b; }
__device__ __noinline__ int times(int a, int b) { return a * b; }
__device__ __noinline__ int minus(int a, int b) { return a - b; }
__device__ int (*table[3])(int, int) = {plus, times, minus};
__constant__ int weights[8] = {1, 2, 3, 5, 7, 11, 13, 17};

struct Shape {
    __device__ virtual float area(float x) const = 0;
};
struct Square : Shape {
    __device__ float area(float x) const override { return x * x; }
};
struct Line : Shape {
    float slope;
    __device__ explicit Line(float k) : slope(k) {}
    __device__ float area(float x) const override { return slope * x + 1; }
};

// out: [4][n]; one block of n threads.
extern "C" __global__ void control(const int* x, int* out, int n) {
    int t = threadIdx.x, v = x[t], r = 1234;
    switch (v & 15) {
    case 0: r = v * 3; break;
    case 1: r = v - 7; break;
    case 2: r = fibonacci(v & 7); break;
    case 3: r = ~v; break;
    case 4: r = v << 3; break;
    case 5: r = 55; break;
    case 6: r = v / 3; break;
    case 7: r = v % 5; break;
    case 9: r = 1 - v; break;
    case 12: r = -9;  // and on
    case 13: r += v; break;
    default: break;
    }
    out[t] = r;
    out[n + t] = table[unsigned(v) % 3](v, t);
    int local[32], sum = 0;
    for (int i = 0; i < 32; i++) local[i] = v * i + weights[i & 7];
    for (int i = 0; i < 32; i++) sum += local[(i * (v & 31)) & 31];
    out[2 * n + t] = sum;
    Square square;
    Line line(3.0f);
    const Shape* shape = t % 3 == 0 ? static_cast<const Shape*>(&square) : &line;
    float total = 0;
    for (int i = 0; i < 3; i++) {
        total += shape->area(float(v & 15) + i);
        shape = shape == &square ? static_cast<const Shape*>(&line) : &square;
    }
    out[3 * n + t] = int(total);
}

// out: [2][n]
extern "C" __global__ void wide(const unsigned long long* x, unsigned long long* out, int n) {
    int t = threadIdx.x;
    unsigned __int128 product = (unsigned __int128)x[t] * x[(t + 1) % n] + 12345;
    out[t] = (unsigned long long)(product >> 64) ^ (unsigned long long)product;
    out[n + t] = (unsigned long long)(product / 1000000007ull);
}

// Adds the numbers in float64, which the swap alone makes atomic.
extern "C" __global__ void swap_sum(const double* x, unsigned long long* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long old = *out, assumed;
    do {
        assumed = old;
        old = atomicCAS(out, assumed, __double_as_longlong(__longlong_as_double(assumed) + x[i]));
    } while (assumed != old);
}
