// Paths: many steps in a call, as `numerics/tiles.py` and `numerics/clock_tiles.py` take them.
//
// Before this come `operations.cuh` and what `source.py` writes for a layer:
//
//   Step<k>          program k of the pattern, or of the clock: `fill` writes its constants, `run`
//                    runs it, `replace` makes its outputs the state; DRIFT and NOISE are the rows
//                    of its first and last output
//   PROGRAMS         their number             SIZE      entries of a state
//   TOKENS, GROUPS   V = mean of F F^T        PART(g), COLUMNS_OF(g)   place of F_g in a state
//   ADDS             whether outputs are added to the state (the limit), or replace it (the chain)
//   LARGEST          sum of absolute entries at which a path stops before a step
//   MODERATE         the same below which a step that is not a number is an error of a block

struct Run {
  double radius, dt;
  const real* table;
  const u64* keys;
  int scheduled, count;  // whether the table has a row for each grid point, and its columns
};

HERE const real* numbers_at(const Run& run, long long point) {
  return run.table + (run.scheduled ? point * run.count : 0);
}

HERE double trace(const Path& x) {
  double total = 0;
  ALL(g, GROUPS) EACH(e, TOKENS * COLUMNS_OF(g)) {
    const double entry = x.b[PART(g) + e];
    total += entry * entry;
  }
  return group_sum(total, x.lane) / GROUPS;
}

// Whether |V| >= radius. |V| <= tr V, so it is computed only where the trace is as large.
HERE bool outside(const Path& x, double radius) {
  if (!(trace(x) >= radius)) return false;
  double total = 0;
  EACH(e, TOKENS * TOKENS) {
    const int i = e / TOKENS, j = e % TOKENS;
    double entry = 0;
    ALL(g, GROUPS) ALL(k, COLUMNS_OF(g))
      entry += double(x.b[PART(g) + i * COLUMNS_OF(g) + k]) * x.b[PART(g) + j * COLUMNS_OF(g) + k];
    total += entry * entry;
  }
  return sqrt(group_sum(total, x.lane)) / GROUPS >= radius;
}

HERE double absolute_sum(const Path& x, int row) {
  double total = 0;
  EACH(i, SIZE) total += fabs(double(x.b[row + i]));
  return group_sum(total, x.lane);
}

// A stopping time before a step whose state has this sum of absolute entries.
HERE double overflow_time(const Path& x, double moved, double now) {
  return moved != moved && absolute_sum(x, 0) < MODERATE ? not_a_number() : now;
}
