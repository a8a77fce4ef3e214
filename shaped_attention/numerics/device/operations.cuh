// Operations of a step on one path: what the files of `numerics/operations` do on tiles.
//
// NVRTC compiles this for a CUDA device. For the tests any compiler of C++17 does, with THREADS
// threads of the host in place of those of the device (`tests/host_kernels.py`).
//
// The THREADS threads of a path share its buffer `b`, with a number for each entry of a matrix, in
// the layout of its program. With one thread all loops are unrolled, so that the buffer is in
// registers. An instruction is a type `L`, whose members are the fields of
// `operations/registry.py`; its operation is the function of that name. Before this come:
//
//   real             float or double        THREADS    1 or 32
//   PIVOT            relative size of a pivot that counts as zero (of squares in `cholesky`)
//   HIDDEN_COLUMNS   hidden units that are drawn at once

typedef unsigned long long u64;

#ifdef __CUDACC__
#define HERE __device__ __forceinline__
#define MEMBER static HERE
#if THREADS == 1
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("unroll 1")
#endif
#define ROLLED _Pragma("unroll 1")
HERE void together() {
#if THREADS > 1
  __syncwarp();
#endif
}
HERE double group_sum(double value, int) {
#if THREADS > 1
  for (int distance = 16; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, distance);
#endif
  return value;
}
HERE double as_double(u64 bits) { return __longlong_as_double((long long)bits); }
HERE void turned(double turns, double* sine, double* cosine) { sincospi(2.0 * turns, sine, cosine); }
HERE double not_a_number() { return __longlong_as_double(0x7ff8000000000000ll); }
#else
#define HERE static inline
#define MEMBER HERE
#define UNROLL
#define ROLLED
HERE double as_double(u64 bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
HERE void turned(double turns, double* sine, double* cosine) {
  *sine = sin(6.283185307179586 * turns);
  *cosine = cos(6.283185307179586 * turns);
}
HERE double not_a_number() { return as_double(0x7ff8000000000000ull); }
#endif

struct Path {
  real* b;
  int lane;
  const real* numbers;
  const u64* keys;
  u64 word;  // second word of the counter: sample and step
};

#define EACH(index, count) UNROLL for (int index = x.lane; index < (count); index += THREADS)
#define ALL(index, count) UNROLL for (int index = 0; index < (count); ++index)
#if THREADS == 1
// The bounds of an unrolled loop have to be the same for all entries.
#define RANGE(index, first, stop, count) ALL(index, count) if (index >= (first) && index < (stop))
#else
#define RANGE(index, first, stop, count) for (int index = (first); index < (stop); ++index)
#endif
#define OPERATION(name) template <class L> HERE void name(const Path& x)

HERE int least(int a, int b) { return a < b ? a : b; }
HERE int most(int a, int b) { return a < b ? b : a; }

// Random numbers: `numerics/threefry.py`.

HERE void turn(u64& x0, u64& x1, int by) {
  x0 += x1;
  x1 = ((x1 << by) | (x1 >> (64 - by))) ^ x0;
}

// Not a loop, since those are not unrolled where a path has a warp.
HERE void mix(u64& x0, u64& x1, int r0, int r1, int r2, int r3) {
  turn(x0, x1, r0), turn(x0, x1, r1), turn(x0, x1, r2), turn(x0, x1, r3);
}

HERE void threefry(const u64* key, u64 c0, u64 c1, u64& x0, u64& x1) {
  const u64 k0 = key[0], k1 = key[1], k2 = k0 ^ k1 ^ 0x1BD11BDAA9FC1A22ull;
  x0 = c0 + k0, x1 = c1 + k1;
  mix(x0, x1, 16, 42, 12, 31), x0 += k1, x1 += k2 + 1;
  mix(x0, x1, 16, 32, 24, 21), x0 += k2, x1 += k0 + 2;
  mix(x0, x1, 16, 42, 12, 31), x0 += k0, x1 += k1 + 3;
  mix(x0, x1, 16, 32, 24, 21), x0 += k1, x1 += k2 + 4;
  mix(x0, x1, 16, 42, 12, 31), x0 += k2, x1 += k0 + 5;
}

HERE double uniform(u64 word) { return 2.0 - as_double((word >> 12) | 0x3FF0000000000000ull); }

// In double precision for float32 too: as on the CPU, the numbers of both precisions are then the
// same up to rounding, and a chi variable accepts the same attempt in both.
HERE void normal_pair(u64 x0, u64 x1, double& a, double& b) {
  const double radius = sqrt(-2.0 * log(uniform(x0)));
  double sine, cosine;
  turned(1.0 - uniform(x1), &sine, &cosine);
  a = radius * cosine, b = radius * sine;
}

HERE void normals_of(const u64* key, u64 word, u64 slot, u64 pair, double& a, double& b) {
  u64 x0, x1;
  threefry(key, (slot << 40) | pair, word, x0, x1);
  normal_pair(x0, x1, a, b);
}

HERE bool accepted(double normal, u64 word, double dof, double& value) {
  const double d = 0.5 * dof - 1.0 / 3.0, root = 1.0 + normal / (3.0 * sqrt(d));
  const double cube = root * root * root, safe = cube > 0.0 ? cube : 1.0;
  value = sqrt(2.0 * d * safe);
  return cube > 0.0 && log(uniform(word)) < 0.5 * normal * normal + d * (1.0 - safe + log(safe));
}

// Two chi variables by the rejection method of Marsaglia and Tsang, `fill_chi` in threefry.py.
HERE void chi_pair(const u64* key, u64 word, u64 slot, int j, double dof, double& one, double& two) {
  bool first = false, second = false;
  ROLLED for (u64 attempt = 0; !(first && second); ++attempt) {
    const u64 pair = (attempt << 20) + j;
    double a, b, value;
    u64 w0, w1;
    normals_of(key, word, slot, pair, a, b);
    threefry(key, (slot << 40) | (pair + 1), word, w0, w1);
    if (!first && accepted(a, w0, dof, value)) first = true, one = value;
    if (!second && accepted(b, w1, dof - 1.0, value)) second = true, two = value;
  }
}

OPERATION(normal) {
  const int size = L::ROWS * L::COLUMNS;
  const double scale = x.numbers[L::SCALAR];
  EACH(k, (size + 1) / 2) {
    double a, b;
    normals_of(x.keys + 2 * L::KEY, x.word, L::SLOT, k, a, b);
    x.b[L::OUT + 2 * k] = real(scale * a), x.b[L::OUT + 2 * k + 1] = real(scale * b);
  }
  together();
}

OPERATION(wishart) {
  const u64* key = x.keys + 2 * L::KEY;
  if (L::WORK == 0) {
    EACH(k, (L::ROWS * L::COLUMNS + 1) / 2) {
      double a, b;
      normals_of(key, x.word, L::SLOT, k, a, b);
      x.b[L::OUT + 2 * k] = real(a), x.b[L::OUT + 2 * k + 1] = real(b);
    }
    together();
    return;
  }
  // Bartlett's factor: normals below the diagonal, row by row, and chi variables on it.
  const int below = L::ROWS * (L::ROWS - 1) / 2;
  EACH(k, (below + 1) / 2) {
    double a, b;
    normals_of(key, x.word, L::SLOT, k, a, b);
    x.b[L::WORK + 2 * k] = real(a), x.b[L::WORK + 2 * k + 1] = real(b);
  }
  EACH(k, (L::ROWS + 1) / 2) {
    double one, two;
    // The second of an odd number is not used; its degrees of freedom only have to be enough.
    chi_pair(key, x.word, L::SLOT + 1, 2 * k, L::COUNT - 2 * k, one, two);
    x.b[L::OUT + 2 * k * (L::ROWS + 1)] = real(one);
    if (2 * k + 1 < L::ROWS) x.b[L::OUT + (2 * k + 1) * (L::ROWS + 1)] = real(two);
  }
  together();
  EACH(i, L::ROWS) {
    ALL(j, L::ROWS)
      if (j != i) x.b[L::OUT + i * L::ROWS + j] = j < i ? x.b[L::WORK + i * (i - 1) / 2 + j] : real(0);
  }
  together();
}

// Entry by entry.

OPERATION(combine) {
  const int down = L::B_ROWS > 1 ? L::B_COLUMNS : 0, along = L::B_COLUMNS > 1 ? 1 : 0;
  const real s = x.numbers[L::SCALAR], t = x.numbers[L::SCALAR_2];
  EACH(e, L::ROWS * L::COLUMNS) {
    const int i = e / L::COLUMNS, j = e % L::COLUMNS;
    x.b[L::OUT + i * L::OUT_COLUMNS + j] = s * x.b[L::A + e] + t * x.b[L::B + i * down + j * along];
  }
  together();
}

OPERATION(times) {
  const int down = L::B_ROWS > 1 ? L::B_COLUMNS : 0, along = L::B_COLUMNS > 1 ? 1 : 0;
  EACH(e, L::ROWS * L::COLUMNS) {
    const real a = x.b[L::A + e], b = x.b[L::B + e / L::COLUMNS * down + e % L::COLUMNS * along];
    x.b[L::OUT + e] = L::FLAG ? a / b : a * b;
  }
  together();
}

OPERATION(over) { times<L>(x); }

OPERATION(scale) {
  const real s = x.numbers[L::SCALAR];
  EACH(e, L::ROWS * L::COLUMNS) {
    const int i = e / L::COLUMNS, j = e % L::COLUMNS;
    x.b[L::OUT + i * L::OUT_COLUMNS + j] = s * x.b[L::A + i * L::A_COLUMNS + j];
  }
  together();
}

OPERATION(concatenate) { scale<L>(x); }

OPERATION(shift) {
  const real s = x.numbers[L::SCALAR], t = x.numbers[L::SCALAR_2];
  EACH(e, L::ROWS * L::COLUMNS) x.b[L::OUT + e] = s * x.b[L::A + e] + t;
  together();
}

#define ENTRYWISE(name, value)                                \
  OPERATION(name) {                                           \
    EACH(e, L::ROWS * L::COLUMNS) {                           \
      const real a = x.b[L::A + e];                           \
      x.b[L::OUT + e] = value;                                \
    }                                                         \
    together();                                               \
  }

HERE real logistic(real a) {
  const real e = exp(-fabs(a)), low = e / (1 + e);
  return a >= 0 ? 1 - low : low;
}

ENTRYWISE(reciprocal, 1 / a)
ENTRYWISE(sign, a > 0 ? real(1) : a < 0 ? real(-1) : a)
ENTRYWISE(sqrt_of, sqrt(a))
ENTRYWISE(exp_of, exp(a))
ENTRYWISE(tanh_of, tanh(a))
ENTRYWISE(normal_cdf, real(0.5) * erfc(-a * real(0.7071067811865476)))
ENTRYWISE(sigmoid, logistic(a))
ENTRYWISE(softplus, (a > 0 ? a : real(0)) + log1p(exp(-fabs(a))))
ENTRYWISE(leaky, (a > 0 ? x.numbers[L::SCALAR] : x.numbers[L::SCALAR_2]) * a)

// Entries in another place.

OPERATION(transpose) {
  EACH(e, L::ROWS * L::COLUMNS)
    x.b[L::OUT + e] = x.b[L::A + e % L::COLUMNS * L::ROWS + e / L::COLUMNS];
  together();
}

OPERATION(reshape) {
  EACH(e, L::ROWS * L::COLUMNS) x.b[L::OUT + e] = x.b[L::A + e];
  together();
}

OPERATION(columns) {
  EACH(e, L::ROWS * L::COLUMNS)
    x.b[L::OUT + e] = x.b[L::A + L::SLOT + e / L::COLUMNS * L::A_COLUMNS + e % L::COLUMNS];
  together();
}

OPERATION(diagonal) {
  EACH(i, L::ROWS) x.b[L::OUT + i] = x.b[L::A + i * (L::A_COLUMNS + 1)];
  together();
}

OPERATION(symmetric) {
  EACH(i, L::ROWS) {
    RANGE(j, 0, i + 1, L::ROWS) {
      const real value = x.b[L::A + i * (i + 1) / 2 + j] * real(i == j ? 1.4142135623730951 : 1.0);
      x.b[L::OUT + i * L::ROWS + j] = value, x.b[L::OUT + j * L::ROWS + i] = value;
    }
  }
  together();
}

OPERATION(rotate) {
  const int pairs = L::B_COLUMNS / 2, width = L::COLUMNS - pairs;
  EACH(e, L::ROWS * width) {
    const int i = e / width, j = e % width, at = i * L::COLUMNS + j, table = L::B + 2 * i * pairs + j;
    if (j < pairs) {
      const real a = x.b[L::A + at], b = x.b[L::A + at + pairs];
      const real cosine = x.b[table], sine = x.b[table + pairs];
      x.b[L::OUT + at] = a * cosine - b * sine, x.b[L::OUT + at + pairs] = b * cosine + a * sine;
    } else {
      x.b[L::OUT + at + pairs] = x.b[L::A + at + pairs];
    }
  }
  together();
}

// Sums.

OPERATION(row_sums) {
  EACH(i, L::ROWS) {
    real total = 0;
    ALL(j, L::A_COLUMNS) total += x.b[L::A + i * L::A_COLUMNS + j];
    x.b[L::OUT + i] = total;
  }
  together();
}

OPERATION(column_sums) {
  EACH(j, L::COLUMNS) {
    real total = 0;
    ALL(i, L::A_ROWS) total += x.b[L::A + i * L::COLUMNS + j];
    x.b[L::OUT + j] = total;
  }
  together();
}

HERE real square_sum(const real* row, int columns) {
  real total = 0;
  ALL(j, columns) total += row[j] * row[j];
  return total;
}

OPERATION(row_squares) {
  EACH(i, L::ROWS) x.b[L::OUT + i] = square_sum(x.b + L::A + i * L::A_COLUMNS, L::A_COLUMNS);
  together();
}

OPERATION(unit_rows) {
  EACH(i, L::ROWS) {
    const real square = square_sum(x.b + L::A + i * L::COLUMNS, L::COLUMNS);
    const real factor = square > 0 ? 1 / sqrt(square) : real(1);
    ALL(j, L::COLUMNS) x.b[L::OUT + i * L::COLUMNS + j] = x.b[L::A + i * L::COLUMNS + j] * factor;
  }
  together();
}

OPERATION(softmax) {
  const real s = x.numbers[L::SCALAR];
  EACH(i, L::ROWS) {
    const int a = L::A + i * L::COLUMNS, seen = L::B + i * L::COLUMNS, out = L::OUT + i * L::COLUMNS;
    real top = 0, total = 0;
    bool some = false;
    ALL(j, L::COLUMNS)
      if (x.b[seen + j] > 0 && (!some || s * x.b[a + j] > top)) some = true, top = s * x.b[a + j];
    ALL(j, L::COLUMNS) {
      const real weight = x.b[seen + j] > 0 ? exp(s * x.b[a + j] - top) : real(0);
      x.b[out + j] = weight, total += weight;
    }
    total = 1 / total;
    ALL(j, L::COLUMNS) x.b[out + j] *= total;
  }
  together();
}

OPERATION(arc_cosine) {
  const real pi = real(3.141592653589793);
  EACH(e, L::ROWS * L::ROWS) {
    const int i = e / L::ROWS, j = e % L::ROWS;
    if (j > i) continue;
    const real a = x.b[L::A + i * (L::ROWS + 1)], b = x.b[L::A + j * (L::ROWS + 1)];
    real value = pi * a;
    if (j < i) {
      const real size = sqrt(a) * sqrt(b);
      real r = size != 0 ? x.b[L::A + e] / size : real(0);
      r = r > 1 ? real(1) : r < -1 ? real(-1) : r;
      value = size * (sqrt(1 - r * r) + r * (pi - acos(r)));
    }
    x.b[L::OUT + e] = value, x.b[L::OUT + j * L::ROWS + i] = value;
  }
  together();
}

// Products, without the zeros of triangular factors.

template <class L, bool LEFT, bool RIGHT>
HERE void multiply(const Path& x) {
  const int inner = LEFT ? L::A_ROWS : L::A_COLUMNS;
  const int a_row = LEFT ? 1 : inner, a_inner = LEFT ? L::ROWS : 1;
  const int b_column = RIGHT ? inner : 1, b_inner = RIGHT ? 1 : L::COLUMNS;
  EACH(e, L::ROWS * L::COLUMNS) {
    const int i = e / L::COLUMNS, j = e % L::COLUMNS;
    const int first = most(L::A_LOWER && LEFT ? i : 0, L::B_LOWER && !RIGHT ? j : 0);
    const int stop = least(L::A_LOWER && !LEFT ? i + 1 : inner, L::B_LOWER && RIGHT ? j + 1 : inner);
    real total = 0;
    RANGE(k, first, stop, inner)
      total += x.b[L::A + i * a_row + k * a_inner] * x.b[L::B + j * b_column + k * b_inner];
    x.b[L::OUT + i * L::OUT_COLUMNS + j] = total;
  }
  together();
}

OPERATION(multiply_nn) { multiply<L, false, false>(x); }
OPERATION(multiply_nt) { multiply<L, false, true>(x); }
OPERATION(multiply_tn) { multiply<L, true, false>(x); }

template <class L, bool LEFT>
HERE void products(const Path& x) {
  const int inner = LEFT ? L::A_ROWS : L::A_COLUMNS;
  const int row = LEFT ? 1 : inner, step = LEFT ? L::ROWS : 1;
  EACH(e, L::ROWS * L::ROWS) {
    const int i = e / L::ROWS, j = e % L::ROWS;
    if (j > i) continue;
    real total = 0;
    RANGE(k, 0, L::A_LOWER && !LEFT ? j + 1 : inner, inner)
      total += x.b[L::A + i * row + k * step] * x.b[L::A + j * row + k * step];
    x.b[L::OUT + e] = total, x.b[L::OUT + j * L::ROWS + i] = total;
  }
  together();
}

OPERATION(gram) { products<L, false>(x); }
OPERATION(cogram) { products<L, true>(x); }

// Triangular roots, with the rule for singular matrices of `operations/factorisations.py`.

OPERATION(lower) {
  const int original = L::WORK + 1, width = L::A_COLUMNS;
  EACH(i, L::ROWS) x.b[original + i] = square_sum(x.b + L::A + i * width, width);
  together();
  ALL(j, L::ROWS) {
    const real square = square_sum(x.b + L::A + j * width, width);
    const bool zero = square - real(PIVOT) * real(PIVOT) * x.b[original + j] <= 0;
    const real length = zero ? real(0) : sqrt(square), factor = zero ? real(0) : 1 / length;
    together();
    EACH(c, width) x.b[L::A + j * width + c] *= factor;
    EACH(i, L::ROWS)
      if (i <= j) x.b[L::OUT + i * L::ROWS + j] = i == j ? length : real(0);
    together();
    EACH(i, L::ROWS) {
      if (i <= j) continue;
      real part = 0;
      ALL(c, width) part += x.b[L::A + i * width + c] * x.b[L::A + j * width + c];
      x.b[L::OUT + i * L::ROWS + j] = part;
      ALL(c, width) x.b[L::A + i * width + c] -= part * x.b[L::A + j * width + c];
    }
    together();
  }
}

OPERATION(cholesky) {
  ALL(j, L::ROWS) {
    EACH(i, L::ROWS) {
      if (i < j) continue;
      real rest = x.b[L::A + i * L::ROWS + j];
      RANGE(k, 0, j, L::ROWS)
        rest -= x.b[L::OUT + i * L::ROWS + k] * x.b[L::OUT + j * L::ROWS + k];
      x.b[L::OUT + i * L::ROWS + j] = rest;
    }
    together();
    const real pivot = x.b[L::OUT + j * (L::ROWS + 1)];
    const bool zero = pivot - real(PIVOT) * x.b[L::A + j * (L::ROWS + 1)] <= 0;
    const real root = zero ? real(0) : sqrt(pivot), factor = zero ? real(0) : 1 / root;
    together();
    EACH(i, L::ROWS) {
      const int at = L::OUT + i * L::ROWS + j;
      x.b[at] = i < j ? real(0) : i == j ? root : x.b[at] * factor;
    }
    together();
  }
}

// Gram matrix of activated hidden units; between the parts of a block come those of the activation.

OPERATION(hidden_start) {
  EACH(e, L::ROWS * L::ROWS) x.b[L::OUT + e] = 0;
  together();
}

template <class L>
HERE void hidden_draw(const Path& x, int start) {
  const int each = L::COPIES * L::A_COLUMNS, here = least(HIDDEN_COLUMNS, L::COUNT - start);
  const int hidden = L::WORK + each * HIDDEN_COLUMNS + 1;
  EACH(k, (HIDDEN_COLUMNS * each + 1) / 2) {
    if (2 * k >= here * each) continue;
    double a, b;
    normals_of(x.keys + 2 * L::KEY, x.word, L::SLOT, u64(start) * each / 2 + k, a, b);
    x.b[L::WORK + 2 * k] = real(a), x.b[L::WORK + 2 * k + 1] = real(b);
  }
  together();
  EACH(e, L::COPIES * L::ROWS * HIDDEN_COLUMNS) {
    const int unit = e % HIDDEN_COLUMNS, i = e / HIDDEN_COLUMNS % L::ROWS;
    const int normals = L::WORK + unit * each + e / HIDDEN_COLUMNS / L::ROWS * L::A_COLUMNS;
    real total = 0;
    RANGE(k, 0, unit >= here ? 0 : L::A_LOWER ? i + 1 : L::A_COLUMNS, L::A_COLUMNS)
      total += x.b[L::A + i * L::A_COLUMNS + k] * x.b[normals + k];
    x.b[hidden + e] = total;
  }
  together();
}

template <class L>
HERE void hidden_add(const Path& x, int start) {
  const int here = least(HIDDEN_COLUMNS, L::COUNT - start);
  EACH(e, L::ROWS * L::ROWS) {
    const int i = e / L::ROWS, j = e % L::ROWS;
    if (j > i) continue;
    real total = x.b[L::OUT + e];
    ALL(u, HIDDEN_COLUMNS)
      if (u < here) total += x.b[L::B + i * HIDDEN_COLUMNS + u] * x.b[L::B + j * HIDDEN_COLUMNS + u];
    x.b[L::OUT + e] = total, x.b[L::OUT + j * L::ROWS + i] = total;
  }
  together();
}
