"""Files of results notice damage: flipped bits, changed numbers, NaN."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import shaped_attention as sa


@pytest.fixture(scope="module")
def chain():
    return sa.simulate_chain(
        sa.ShapedAttention(0.5), sa.equicorrelated(3, 0.2), width=16, depth=8, samples=40,
        save_every=2, radius=4.0,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of h5netcdf
def test_a_flipped_bit_is_noticed(chain, tmp_path):
    """60 bits of the file, one at a time: an error, or the same result (bytes of no meaning)."""
    path = sa.save(chain, tmp_path / "chain.nc")
    whole = path.read_bytes()
    rng, noticed = np.random.default_rng(0), 0
    for _ in range(60):
        data = bytearray(whole)
        data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        try:
            assert sa.load(path).identical(chain)
        except ValueError:
            noticed += 1
    assert noticed > 40


def test_other_numbers_are_noticed(chain, tmp_path):
    """A program that rewrites the file and keeps its checksums; each change names its variable."""
    path = tmp_path / "chain.nc"
    with xr.open_dataset(sa.save(chain, path), engine="h5netcdf") as opened:
        kept = opened.attrs["checksums"]
    v = chain.V.to_numpy().copy()
    v[-1, 3, 0, 1] = np.nextafter(v[-1, 3, 0, 1], 9.0)
    for changed, name in (
        (chain.assign(V=(chain.V.dims, v)), "variable V"),
        (chain.isel(sample=slice(30)), "variable V, variable stopping_time"),
        (chain.assign_attrs(seed=5), "attributes"),
    ):
        changed.assign_attrs(checksums=kept).to_netcdf(path, engine="h5netcdf")
        with pytest.raises(ValueError, match=rf"damaged since it was written \(.*{name}"):
            sa.load(path)


def test_nan_is_neither_written_nor_read(chain, tmp_path):
    broken = chain.copy(deep=True)
    broken["V"].values.flat[0] = np.nan
    with pytest.raises(ValueError, match=r"^result: V has missing entries$"):
        sa.save(broken, tmp_path / "broken.nc")
    broken.to_netcdf(tmp_path / "broken.nc", engine="h5netcdf")
    with pytest.raises(ValueError, match=r"V has missing entries$"):
        sa.load(tmp_path / "broken.nc")
