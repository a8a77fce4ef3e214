// Steps of varying length, as `numerics/clock_tiles.py` takes them: programs 0, 1 and 2 are the
// speed, a step, and the variance rate of log |V|.

struct Clock {
  double *left, *largest;
  long long *grid, *taken;
  const long long* slots;
  real* stored;
  long long rows, end;
  int budget;
  double shift, near;
};

HERE void advance_clock_path(
    real* b, int lane, long long path, real* state, unsigned char* alive, double* stopped_at,
    const Run& run, const Clock& clock, long long sample) {
  Path x = {b, lane, run.table, run.keys, 0};
  EACH(i, SIZE) x.b[i] = state[path * SIZE + i];
  together();
  long long grid = clock.grid[path], taken = clock.taken[path];
  double left = clock.left[path], largest = clock.largest[path], stop = 0;
  bool moving = true;
  ROLLED for (int spent = 0; moving && grid < clock.end && spent < clock.budget; ++spent) {
    x.numbers = numbers_at(run, grid);
    x.word = (u64(sample) << 32) | u64(taken);
    Step<0>::fill(x), Step<0>::run(x);
    const double speed = x.b[Step<0>::DRIFT];
    largest = speed > largest ? speed : largest;
    double pieces = floor(left * (1.0 + speed) / run.dt + 0.5);
    pieces = pieces > 1.0 ? pieces : 1.0;
    const double length = left / pieces;
    double now = grid * run.dt + (run.dt - left);
    together();
    if (lane == 0) x.b[SIZE] = length;
    together();
    Step<1>::fill(x), Step<1>::run(x);
    const double moved = absolute_sum(x, Step<1>::DRIFT);
    if (!(moved < LARGEST)) {
      stop = overflow_time(x, moved, now), moving = false;
      break;
    }
    EACH(i, SIZE) x.b[i] = x.b[Step<1>::DRIFT + i];
    together();
    ++taken;
    const bool arrived = pieces == 1.0;
    if (arrived) {
      ++grid, left = run.dt, now = grid * run.dt;
    } else {
      left -= length, now += length;
    }
    if (trace(x) >= clock.near * run.radius) {
      Step<2>::fill(x), Step<2>::run(x);
      const double deviation = sqrt(double(x.b[Step<2>::DRIFT]) * length);
      if (outside(x, run.radius * exp(-clock.shift * deviation))) stop = now, moving = false;
    }
    if (arrived && moving && clock.slots[grid] >= 0)
      EACH(i, SIZE) clock.stored[(clock.slots[grid] * clock.rows + path) * SIZE + i] = x.b[i];
  }
  EACH(i, SIZE) state[path * SIZE + i] = x.b[i];
  if (lane != 0) return;
  clock.grid[path] = grid, clock.taken[path] = taken;
  clock.left[path] = left, clock.largest[path] = largest;
  if (!moving) alive[path] = 0, stopped_at[path] = stop;
}
