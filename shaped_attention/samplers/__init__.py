"""The samplers: networks with real weights, the exact chain, the limit, and their shared parts.

`chain`, `network` and `sde` are the samplers; `pathwise` differentiates their paths, and `explain`
says what runs a layer. A `specification` is what was asked for, a
`task` the law of a step. A stepper (`steppers`) moves a batch of `paths`, and `loop` is the loop.
"""
