"""Compiled inner loops on the CPU.

A *tile* is an array whose last axis holds ``LANES`` paths: an m x m matrix for each of them is an
array ``(m, m, LANES)``, and every loop over that last axis is one vector instruction after the
other. `jit`, `vectormath`, `threefry`, `lanes` and `wishart` know numbers and matrices, not
transformers. `attention` and `mlp` are the compiled faces of the blocks of that name and give the
same paths as their readable torch faces, which the tests show.
"""
