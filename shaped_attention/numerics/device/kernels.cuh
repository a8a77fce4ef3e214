// What the host launches: a thread, or the threads of a warp, for each path. With a warp, SHARED says
// whether the buffers of a block's paths fit into its shared memory.

#ifdef __CUDACC__
#if THREADS == 1
#define BUFFER         \
  real memory[BUFFER_ROWS];   \
  real* const b = memory;
#elif SHARED
#define BUFFER                          \
  extern __shared__ double shared[];    \
  real* const b = (real*)shared + BUFFER_ROWS * (threadIdx.x / THREADS);
#else
#define BUFFER real* const b = scratch + BUFFER_ROWS * group;
#endif
#define EACH_PATH                                                                         \
  const long long group = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / THREADS;   \
  const long long groups = gridDim.x * (long long)blockDim.x / THREADS;                   \
  const int lane = threadIdx.x % THREADS;                                                 \
  BUFFER                                                                                  \
  for (long long path = group; path < (long long)rows; path += groups)
#define KERNEL extern "C" __global__ void
#else
#define EACH_PATH for (long long path = 0; path < (long long)rows; ++path)
#define KERNEL HERE void
#define EMULATED , real* b, int lane
#endif
#ifndef EMULATED
#define EMULATED
#endif

#ifndef CLOCK
KERNEL advance(
    real* state, unsigned char* alive, double* stopped_at, const unsigned char* moves,
    const real* table, const u64* keys, real* scratch, double radius, double dt, double rows,
    double first, int scheduled, int count, double begin, double end EMULATED) {
  const Run run = {radius, dt, table, keys, scheduled, count};
  EACH_PATH {
    if (alive[path] && moves[path])
      advance_path(
          b, lane, path, state, alive, stopped_at, run, (long long)first + path, (long long)begin,
          (long long)end);
  }
}
#else
KERNEL advance(
    real* state, unsigned char* alive, double* stopped_at, const unsigned char* moves,
    const real* table, const u64* keys, real* scratch, double radius, double dt, double rows,
    double first, int scheduled, int count, double end, double* left, double* largest,
    long long* grid, long long* taken, const long long* slots, real* stored, int budget,
    double shift, double near EMULATED) {
  const Run run = {radius, dt, table, keys, scheduled, count};
  const Clock clock = {left,   largest,         grid,           taken,  slots, stored,
                       (long long)rows, (long long)end, budget, shift, near};
  EACH_PATH {
    if (alive[path] && moves[path])
      advance_clock_path(
          b, lane, path, state, alive, stopped_at, run, clock, (long long)first + path);
  }
}
#endif
