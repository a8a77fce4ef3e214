"""Starting data from files: .npy arrays of real numbers, and a sentence for what is not."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shaped_attention.io import inputs
from shaped_attention.io.inputs import example_tokens, read_covariance, read_tokens

NUMBERS = np.array([[1.5, -2.0, 3.25], [0.0, 1e-3, 7.0]])
Writer = Callable[[Path], object]


def as_npy(array: Any) -> Writer:
    def write(path: Path) -> None:
        # An open file, since NumPy would add its own extension to the name.
        with path.open("wb") as stream:
            np.save(stream, array)

    return write


class Trap:
    """Unpickling it runs code, which must never happen."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("unpickled",))


@pytest.mark.parametrize("layout", [np.asfortranarray(NUMBERS), NUMBERS.astype(">f8")])
def test_every_layout_gives_the_same_numbers(tmp_path: Path, layout: Any) -> None:
    np.save(tmp_path / "a.npy", layout)
    for argument in (tmp_path / "a.npy", str(tmp_path / "a.npy")):
        tokens = read_tokens(argument)
        np.testing.assert_array_equal(tokens, NUMBERS)
        assert tokens.dtype == np.dtype(np.float64)
        assert tokens.flags.c_contiguous
        assert tokens.flags.writeable


REFUSED: dict[str, tuple[str, Writer, str]] = {
    "wrong extension": (
        "a.txt",
        lambda p: p.write_text("1,2"),
        r"must be a \.npy file; it has the extension \.txt",
    ),
    "text": ("a.npy", lambda p: p.write_text("1,2"), r"cannot be read as a \.npy file"),
    "objects": ("a.npy", as_npy(np.array([[Trap()]])), "never unpickled"),
    "scalar": ("a.npy", as_npy(np.float64(3)), r"two-dimensional array; its shape is \(\)"),
    "nan": ("a.npy", as_npy([[1.0, 2.0], [np.nan, np.inf]]), r"2 of 4 .*nan at \[1, 0\]"),
    "missing": ("nowhere/missing.npy", lambda p: None, "missing.npy: there is no such file"),
}


@pytest.mark.parametrize(("filename", "write", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    filename: str,
    write: Writer,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / filename
    write(path)
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        read_tokens(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert not Path("unpickled").exists()


def test_covariances_are_square_and_as_stored(tmp_path: Path) -> None:
    # Not symmetric on purpose: that is for the user of the matrix to refuse.
    matrix = np.array([[2.0, 1.0], [0.5, 2.0]])
    np.save(tmp_path / "a.npy", matrix)
    np.testing.assert_array_equal(read_covariance(tmp_path / "a.npy"), matrix)
    np.save(tmp_path / "a.npy", NUMBERS)
    with pytest.raises(
        ValueError, match=r"a\.npy must hold a square matrix; got 2 rows and 3 columns"
    ):
        read_covariance(tmp_path / "a.npy")


def test_example_is_the_shipped_file() -> None:
    tokens, embeddings = example_tokens()
    assert tokens == ["call", "me", "is", "##hma", "##el", ".", "some", "years"]
    assert embeddings.shape == (8, 384)
    assert np.linalg.matrix_rank(embeddings) == 8
    # First entries of the model's own table, so that another file cannot take its place.
    expected = np.array([0.00657116, 0.01106204, -0.02887948, 0.0036348, -0.09729796])
    np.testing.assert_allclose(embeddings[0, :5], expected, rtol=1e-5)
    path = resources.files("shaped_attention") / "data" / inputs._EXAMPLE
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        assert "Apache-2.0" in str(stored["source"])
