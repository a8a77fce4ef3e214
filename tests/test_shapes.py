"""Shapes in annotations are checked while tests run."""

from __future__ import annotations

import pytest
import torch
from jaxtyping import TypeCheckError

from shaped_attention.numerics.draws import _uniform
from tests import shapes


def test_the_first_calls_of_a_test_are_checked():
    words, wrong = torch.zeros(3, dtype=torch.int64), torch.zeros(3)
    with pytest.raises(TypeCheckError, match="_uniform"):
        _uniform(wrong)
    for _ in range(shapes.CHECKS):
        _uniform(words)
    with pytest.raises(RuntimeError):
        _uniform(wrong)
