"""The samplers: networks with real weights, the exact chain, the limit, and their shared parts.

`chain`, `network` and `sde` are the samplers; `pathwise` differentiates their paths, and `explain`
says what runs a layer. A `specification` is what was asked for, a stepper (`steppers`) what moves
its `paths`, `loop` takes them to the end in chunks, and `results` makes the Dataset.
"""
