"""Small matrices: the primitives of descriptions, random numbers, executors on the CPU.

A description is written in `primitives`. Torch runs it as it is (`factor`, `named_numbers`,
`draws`); traced (`graph`, `traced_numbers`, `scalars`) it becomes a `program`, which runs on tiles
(`tiles`, `tile_interpreter`, `tile_algebra`, `products`, `wishart`) or by library routines
(`blas_plan`, `blas_operations`, `lapack`). A *tile*
is an array whose last axis holds ``LANES`` paths: an m x m matrix for each of them is an array
``(m, m, LANES)``, and every loop over that last axis is one vector instruction after the other.
Random numbers are functions of integers (`threefry`, `seeds`). `covariance` and `observables` are
what V is and what is read off it. Nothing here knows a block.
"""
