"""The samplers: networks with real weights, the exact chain, the SDE, and what they share.

`network`, `chain` and `sde` are the three; `pathwise` differentiates their paths. Each checks its
arguments (`request`), composes the step of a layer (`steps`, `task`), gives it to an executor
(`processes`, `large_matrices`) and loops (`driver`, `chunks`). `results` are Datasets that carry
their specification; `rerun` and `continuation` start from one.
"""
