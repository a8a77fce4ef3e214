"""Results: Datasets that carry the call that made them (`provenance`, `plain_arguments`).

`files` saves and loads them, and `over_grid` joins those of a grid of parameters.
Nothing here refers to a particular function.
"""
