"""Small matrices: the primitives of descriptions, random numbers, executors on the CPU.

A description is written in `primitives`; each operation is one file of `operations`, with all its
faces. Torch runs a description directly (`named_numbers`, `draws`). Tracing (`graph`,
`named_numbers`, `scalars`) turns it into a `program`, which runs in one of two ways:

- as emitted code, a path in each lane of a vector (`step`, `mover`, and `compiler` below);
- one sample at a time by library routines (`plan`, `routines`, `array_code`), for large matrices
  and large layers.

`dual` has matrices with tangents. `threads` shares the operations of a program among threads and
keeps libraries to one each. `operations.registry` tells how fast the value of a trace grows. Random
numbers are functions of integers (`fills`, `seeds`). `covariance` defines V, and `observables` the
numbers derived from it. Nothing here knows a block.
"""
