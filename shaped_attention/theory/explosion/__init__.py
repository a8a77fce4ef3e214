"""Exact laws of explosion: a scalar of V that follows an SDE of its own, and its passage times."""
