"""Rows of which few directions are known: tokens and projections, exactly in law."""
