// Steps of one length, as `numerics/tiles.py` takes them.

// Take one step; return whether the path moves on, or set its stopping time.
template <int K>
HERE bool take(const Path& x, const Run& run, long long step, double& stop) {
  Step<K>::run(x);
  if (ADDS) {
    double moved = 0;
    EACH(i, SIZE)
      moved += fabs(double(x.b[i] + x.b[Step<K>::DRIFT + i] + x.b[Step<K>::NOISE + i]));
    moved = group_sum(moved, x.lane);
    if (!(moved < LARGEST)) {
      stop = overflow_time(x, moved, step * run.dt);
      return false;
    }
    EACH(i, SIZE) x.b[i] = (x.b[i] + x.b[Step<K>::DRIFT + i]) + x.b[Step<K>::NOISE + i];
  } else {
    Step<K>::replace(x);
  }
  together();
  if (!outside(x, run.radius)) return true;
  stop = (step + 1) * run.dt;
  return false;
}

template <int K>
HERE bool take_one_of(const Path& x, const Run& run, long long step, double& stop) {
  if constexpr (K + 1 < PROGRAMS)
    if (step % PROGRAMS != K) return take_one_of<K + 1>(x, run, step, stop);
  if (PROGRAMS > 1) Step<K>::fill(x);
  return take<K>(x, run, step, stop);
}

// Take a path through the steps begin, ..., end - 1.
HERE void advance_path(
    real* b, int lane, long long path, real* state, unsigned char* alive, double* stopped_at,
    const Run& run, long long sample, long long begin, long long end) {
  Path x = {b, lane, run.table, run.keys, 0};
  EACH(i, SIZE) x.b[i] = state[path * SIZE + i];
  together();
  if (PROGRAMS == 1) Step<0>::fill(x);
  double stop = 0;
  bool moving = true;
  ROLLED for (long long step = begin; step < end && moving; ++step) {
    x.numbers = numbers_at(run, step);
    x.word = (u64(sample) << 32) | u64(step);
    moving = take_one_of<0>(x, run, step, stop);
  }
  EACH(i, SIZE) state[path * SIZE + i] = x.b[i];
  if (!moving && lane == 0) alive[path] = 0, stopped_at[path] = stop;
}
