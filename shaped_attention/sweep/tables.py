"""Tables of a sweep for other programs: one row per mean, or per sample."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from shaped_attention.checks import argument_error
from shaped_attention.io.storage import written
from shaped_attention.results.files import save
from shaped_attention.sweep.reading import open_sweep, seen, sweep_of, sweep_summary

_ARRAYS = (".nc", ".zarr")

_TABLES = (".csv", ".parquet")

_COLUMNS = ["mean", "half_width", "lower", "upper", "deviation", "samples"]
"""Variables in a table of the summary."""


def export_sweep(store: Path, output: Path, summary: bool | None = None) -> None:
    """Write the sweep of a store to a file, or a folder for Zarr, in the format of its suffix.

    With `summary`, by default in tables (CSV and Parquet), these are means with their intervals.
    """
    check_suffix(output)
    data = open_sweep(store)
    if output.suffix not in _TABLES:
        save(sweep_summary(data) if summary else data.load(), output)
        return
    table = sample_table(data) if summary is False else summary_table(data)
    with written(output) as draft:
        if output.suffix == ".csv":
            table.to_csv(draft, index=False)
        else:
            table.to_parquet(draft, index=False)


def check_suffix(output: Path) -> None:
    """Raise ValueError unless the suffix of a file names a format that can be written."""
    if output.suffix not in _ARRAYS + _TABLES:
        raise argument_error("output", f"a file {', '.join(_ARRAYS + _TABLES)}", str(output))
    if output.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise ValueError(
            f"{output}: Parquet needs pyarrow; the extra `parquet` installs it: pip install "
            '"shaped-attention[parquet]"'
        )


def summary_table(data: xr.Dataset) -> pd.DataFrame:
    """Return the means of a sweep, one row per cell, sampler, time and observable."""
    order = [*sweep_of(data).axes, "sampler", "time", "observable"]
    table = sweep_summary(data)[_COLUMNS].to_dataframe(dim_order=order).reset_index()
    return table[[*order, *_COLUMNS]]


def sample_table(data: xr.Dataset) -> pd.DataFrame:
    """Return the samples drawn in a sweep, one row per cell, sampler, time and sample.

    There is one column per observable, or per entry of V on and above its diagonal. The last column
    is the stopping time.
    """
    if "values" in data:
        names = data["kept"].values.tolist()
        columns = {name: data["values"].sel(kept=name, drop=True) for name in names}
    elif "V" in data:
        m = data.sizes["row"]
        columns = {
            f"V[{i},{j}]": data["V"].isel(row=i, col=j) for i in range(m) for j in range(i, m)
        }
    else:
        raise ValueError("the sweep keeps reductions, which have no samples; export its --summary")
    columns["stopping_time"] = data["stopping_time"]
    order = [*sweep_of(data).axes, "sampler", "time", "sample"]
    numbered = xr.Dataset(columns).assign_coords(sample=np.arange(data.sizes["sample"]))
    table = numbered.assign({"": seen(data)}).to_dataframe(dim_order=order).reset_index()
    return table.loc[table[""], [*order, *columns]].reset_index(drop=True)
