"""Results: Datasets that carry the call that made them (`provenance`, `plain_arguments`).

`rerun` makes the call again, `files` saves and loads results, and `over_grid` joins those of a
grid of parameters. Nothing here refers to a particular function.
"""
