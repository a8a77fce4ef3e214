"""A compiler for steps of paths: LLVM's text for any processor, in a tenth of a second.

`text` writes functions whose values are vectors with a path in each lane, or single numbers;
`functions` has elementary functions, `random` the random numbers, `matrices` products and loops
over entries, and `llvm` turns text into code in this process. What is emitted does not depend on
who emits it: the operations of descriptions (`numerics.operations`) and the steps of paths
(`numerics.step`, `numerics.mover`) use the same words.
"""
