"""A function over a grid of parameters, as one Dataset."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from shaped_attention.results.over_grid import over_grid


def powers(base, power):
    """Return plus and minus base^power, with an attribute that all cells share and one of each."""
    values = ("sample", [base**power, -(base**power)])
    return xr.Dataset({"value": values}, coords={"sample": [3, 4]}, attrs={"n": 2, "own": power})


def test_each_cell_has_its_place():
    """The order of the axes is that of the dimensions, and their values select."""
    found = over_grid(powers, {"base": [2.0, 3.0, 5.0], "power": [1, 2]})
    assert found["value"].dims == ("base", "power", "sample")
    np.testing.assert_array_equal(found["value"].sel(sample=3), [[2, 4], [3, 9], [5, 25]])
    assert float(found["value"].sel(base=5.0, power=2, sample=4)) == -25.0
    assert found.attrs == {"n": 2}
    turned = over_grid(powers, {"power": [1, 2], "base": [2.0, 3.0, 5.0]})
    assert turned["value"].dims == ("power", "base", "sample")
    xr.testing.assert_identical(found["value"], turned["value"].transpose("base", "power", ...))


@pytest.mark.parametrize("values", [[], [2.0, 2.0]])
def test_axes_have_different_values(values):
    with pytest.raises(ValueError, match=r"base must be a list of distinct values"):
        over_grid(powers, {"base": values, "power": [1]})
