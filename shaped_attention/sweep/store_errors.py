"""Errors of the store of a sweep."""

from __future__ import annotations


class StoreError(RuntimeError):
    """The store cannot be used or written; the units in the ledger are intact."""


class UnwritableError(StoreError):
    """The disk is full, or the folder can no longer be written."""
