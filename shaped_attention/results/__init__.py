"""Results: Datasets that carry the call that made them (`provenance`, `plain_arguments`).

The call can be made again (`rerun`); `files` saves and loads them, `over_grid` joins those of a
grid of parameters. Nothing here knows a function by name.
"""
