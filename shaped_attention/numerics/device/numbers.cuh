// Normals of a slot for each sample: the weights of networks, written once and not made of launches.

#ifdef __CUDACC__
#define NUMBERS extern "C" __global__ void
#define FIRST_PLACE (blockIdx.x * (long long)blockDim.x + threadIdx.x)
#define PLACES (gridDim.x * (long long)blockDim.x)
#else
#define NUMBERS HERE void
#define FIRST_PLACE 0
#define PLACES 1
#endif

NUMBERS fill_normals(
    real* out, const u64* key, const long long* samples, double rows, double count, double step,
    double slot, double first) {
  const long long columns = (long long)count, pairs = (columns + 1) / 2;
  for (long long k = FIRST_PLACE; k < (long long)rows * pairs; k += PLACES) {
    const long long row = k / pairs, pair = k % pairs;
    const u64 word = ((u64)samples[row] << 32) + (u64)step;
    double a, b;
    normals_of(key, word, (u64)slot, (u64)first + pair, a, b);
    real* const place = out + row * columns + 2 * pair;
    place[0] = real(a);
    if (2 * pair + 1 < columns) place[1] = real(b);
  }
}
