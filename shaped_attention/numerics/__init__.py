"""Small matrices: the primitives of descriptions, random numbers, executors on the CPU.

A description is written in `primitives`. Torch runs it directly (`factor`, `named_numbers`,
`draws`). Tracing (`graph`, `traced_numbers`, `scalars`) turns it into a `program`, which runs on
tiles (`tiles`, `tile_interpreter`, `tile_algebra`, `products`, `wishart`) or by library routines
(`blas_plan`, `blas_operations`, `blas_stacks`, `blas_parts`, `blas_team`, `lapack`). A *tile* is an
array whose last axis holds ``LANES`` paths: one m x m matrix per path is an array ``(m, m,
LANES)``, and every loop over the last axis is a sequence of vector instructions. Random numbers are
functions of integers (`threefry`, `seeds`).
`covariance` defines V, and `observables` the numbers derived from it. Nothing here knows a block.
"""
