"""Reading starting data: what is accepted, and one clear sentence for each thing that is not."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

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


def as_npz(**arrays: Any) -> Writer:
    return lambda path: np.savez(path, **arrays)


def as_pt(value: object) -> Writer:
    return lambda path: torch.save(value, path)


def as_text(text: str) -> Writer:
    return lambda path: path.write_text(text, encoding="utf-8")


def as_bytes(data: bytes) -> Writer:
    return lambda path: path.write_bytes(data)


def cut_short(whole: Writer, kept: float) -> Writer:
    """A truncated file."""

    def write(path: Path) -> None:
        whole(path)
        data = path.read_bytes()
        path.write_bytes(data[: int(kept * len(data))])

    return write


class Trap:
    """Unpickling it runs code, which must never happen."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("unpickled",))


ACCEPTED: dict[str, tuple[str, Writer, str | None]] = {
    "npy": ("a.npy", as_npy(NUMBERS), None),
    "npy, upper-case extension": ("a.NPY", as_npy(NUMBERS), None),
    "npy, Fortran order": ("a.npy", as_npy(np.asfortranarray(NUMBERS)), None),
    "npy, big-endian": ("a.npy", as_npy(NUMBERS.astype(">f8")), None),
    "npz, one array": ("a.npz", as_npz(x=NUMBERS), None),
    "npz, one matrix": ("a.npz", as_npz(x=NUMBERS, y=np.ones(3), z=np.array([["a"]])), None),
    "npz, key": ("a.npz", as_npz(x=NUMBERS, y=np.ones((3, 3))), "x"),
    "npz, objects alongside": ("a.npz", as_npz(x=NUMBERS, y=np.array([None, 1])), None),
    "csv": ("a.csv", as_text("1.5,-2,3.25\n0,1e-3,7\n"), None),
    "csv, header": ("a.csv", as_text("a,b,c\n1.5,-2,3.25\n0,1e-3,7\n"), None),
    "csv, quoted, byte order mark, blank lines, Windows line ends": (
        "a.csv",
        as_text('\ufeff"1.5", -2 ,3.25\r\n\r\n0,1e-3,7\r\n \r\n'),
        None,
    ),
    "pt": ("a.pt", as_pt(torch.tensor(NUMBERS)), None),
    "pt, parameter": ("a.pt", as_pt(torch.nn.Parameter(torch.tensor(NUMBERS))), None),
    "pt, one matrix": ("a.pt", as_pt({"x": torch.tensor(NUMBERS), "y": torch.ones(3)}), None),
    "pt, key": ("a.pt", as_pt({"x": torch.tensor(NUMBERS), "y": torch.ones(3, 3)}), "x"),
    "pt, other things alongside": ("a.pt", as_pt({"x": torch.tensor(NUMBERS), "n": 3}), None),
}


@pytest.mark.parametrize(("filename", "write", "key"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_every_format_gives_the_same_numbers(
    tmp_path: Path, filename: str, write: Writer, key: str | None
) -> None:
    path = tmp_path / filename
    write(path)
    for argument in (path, str(path)):
        tokens = read_tokens(argument, key)
        np.testing.assert_array_equal(tokens, NUMBERS)
        assert tokens.dtype == np.dtype(np.float64)
        assert tokens.flags.c_contiguous
        assert tokens.flags.writeable


@pytest.mark.parametrize(
    "dtype",
    [np.float16, np.float32, np.int8, np.uint32, np.longdouble, torch.bfloat16, torch.int64],
)
def test_real_types_become_float64(tmp_path: Path, dtype: Any) -> None:
    numbers = [[1, 2], [3, 100]]
    if isinstance(dtype, torch.dtype):
        path = tmp_path / "a.pt"
        torch.save(torch.tensor(numbers, dtype=dtype), path)
    else:
        path = tmp_path / "a.npy"
        np.save(path, np.array(numbers, dtype=dtype))
    tokens = read_tokens(path)
    assert tokens.dtype == np.dtype(np.float64)
    np.testing.assert_array_equal(tokens, numbers)


# Each entry: file name, how it is written, key, and words of the message that must appear.
REFUSED: dict[str, tuple[str, Writer, str | None, str]] = {
    "wrong extension": (
        "a.txt",
        as_text("1,2"),
        None,
        r"must be a \.npy, \.npz, \.csv or \.pt file; it has the extension \.txt",
    ),
    "no extension": ("a", as_text("1,2"), None, "no extension"),
    "directory": ("a.npy", lambda p: p.mkdir(), None, "it is a directory"),
    "pipe": ("a.npy", lambda p: os.mkfifo(p), None, "not a regular file"),
    "npy, text": ("a.npy", as_text("1,2"), None, r"cannot be read as a \.npy file"),
    "npy, cut in data": ("a.npy", cut_short(as_npy(NUMBERS), 0.9), None, "cannot be read"),
    "npy, cut in head": ("a.npy", cut_short(as_npy(NUMBERS), 0.3), None, "cannot be read"),
    "npy, objects": ("a.npy", as_npy(np.array([[Trap()]])), None, "never unpickled"),
    "npy, key": ("a.npy", as_npy(NUMBERS), "x", "key='x' was given, but a .npy file"),
    "npz, text": ("a.npz", as_text("1,2"), None, r"cannot be read as a \.npz file"),
    "npz, is npy": ("a.npz", as_npy(NUMBERS), None, "cannot be read as"),
    "npz, lone objects": ("a.npz", as_npz(x=np.array([[Trap()]])), None, "never unpickled"),
    "npz, no arrays": ("a.npz", as_npz(), None, "the file holds no arrays"),
    "npz, unknown key": ("a.npz", as_npz(x=NUMBERS), "z", "has the key 'z'; the keys are 'x'"),
    "npz, two matrices": (
        "a.npz",
        as_npz(x=NUMBERS, y=NUMBERS),
        None,
        "2 arrays .* key= must name one; the keys are 'x', 'y'",
    ),
    "npz, no matrix": (
        "a.npz",
        as_npz(x=[1.0], y=[2.0]),
        None,
        "must hold a two-dim.*; it has none, and the keys are 'x', 'y'",
    ),
    "npz, lone vector": (
        "a.npz",
        as_npz(x=[1.0, 2.0]),
        None,
        r"\(key 'x'\) must hold a two-dimensional array; its shape is \(2,\)",
    ),
    "npz, many keys": (
        "a.npz",
        as_npz(**{f"k{i:02d}": NUMBERS for i in range(20)}),
        None,
        "'k00', .*'k11' and 8 more",
    ),
    "csv, no lines": ("a.csv", as_text("\n\n"), None, "no lines"),
    "csv, header only": ("a.csv", as_text("a,b\n"), None, "only a header line"),
    "csv, two headers": ("a.csv", as_text("a,b\nc,d\n1,2\n"), None, "line 2, field 1 is 'c'"),
    "csv, ragged": ("a.csv", as_text("1,2\n3,4\n\n5,6,7\n"), None, "line 4 has 3 fields, .*have 2"),
    "csv, word in first line": ("a.csv", as_text("1,x\n2,3\n"), None, "line 1, field 2 is 'x'"),
    "csv, missing entry": ("a.csv", as_text("1,2\n3,\n"), None, "line 2, field 2 is empty"),
    "csv, missing row": ("a.csv", as_text("1,2\n,\n"), None, "line 2, field 1 is empty"),
    "csv, semicolons": ("a.csv", as_text("1;2\n3;4\n"), None, "line 2, .*'3;4'.*commas"),
    "csv, complex": ("a.csv", as_text("1,2\n3,1+2j\n"), None, r"'1\+2j', but every .* real"),
    "csv, underscore": ("a.csv", as_text("1,2\n3,1_0\n"), None, "'1_0'"),
    "csv, long field": ("a.csv", as_text("1\n" + "y" * 500), None, r"'y{37}\.\.\.'"),
    "csv, nan": ("a.csv", as_text("1,2\n3,nan\n"), None, "nan in row 2, column 2"),
    "csv, not text": ("a.csv", as_bytes(b"1,2\n\xff\xfe\n"), None, "not UTF-8"),
    "csv, huge field": ("a.csv", as_text("1" * 200_000), None, "line 1 is not comma-separated"),
    "csv, key": ("a.csv", as_text("1,2\n"), "x", "key='x' was given, but a .csv file"),
    "pt, text": ("a.pt", as_text("1,2"), None, r"cannot be read as a \.pt file"),
    "pt, cut": ("a.pt", cut_short(as_pt(torch.ones(9, 9)), 0.6), None, "cannot be read"),
    "pt, code": ("a.pt", as_pt({"x": Trap()}), None, "never unpickled"),
    "pt, list": ("a.pt", as_pt([torch.ones(2, 2)]), None, "object of type list"),
    "pt, key for a tensor": ("a.pt", as_pt(torch.ones(2, 2)), "x", "one tensor without a name"),
    "pt, unknown key": ("a.pt", as_pt({"x": torch.ones(2, 2)}), "z", "the keys are 'x'"),
    "pt, key of a number": ("a.pt", as_pt({"x": 3}), "x", "no array has the key 'x'"),
    "pt, two matrices": (
        "a.pt",
        as_pt({"x": torch.ones(2, 2), "y": torch.ones(2, 2)}),
        None,
        "2 arrays .*the keys are 'x', 'y'",
    ),
    "pt, empty dictionary": ("a.pt", as_pt({}), None, "the file holds no arrays"),
    "pt, truth values": ("a.pt", as_pt(torch.ones(2, 2) > 0), None, "non-numeric type bool"),
    "pt, sparse": ("a.pt", as_pt(torch.eye(2).to_sparse()), None, "a dense tensor .* sparse_coo"),
    "complex": ("a.npy", as_npy(NUMBERS * 1j), None, "real numbers; its entries are complex"),
    "text": ("a.npy", as_npy(np.array([["a", "b"]])), None, "non-numeric type <U1"),
    "scalar": ("a.npy", as_npy(np.float64(3)), None, r"two-dimensional array; its shape is \(\)"),
    "vector": ("a.npy", as_npy(np.ones(3)), None, r"two-dimensional array; its shape is \(3,\)"),
    "stack": ("a.npy", as_npy(np.ones((2, 3, 3))), None, r"array; its shape is \(2, 3, 3\)"),
    "no rows": ("a.npy", as_npy(np.ones((0, 3))), None, r"one row and one column; .* \(0, 3\)"),
    "nan": (
        "a.npy",
        as_npy([[1.0, 2.0], [np.nan, np.inf]]),
        None,
        "2 of 4 .*nan in row 2, column 1",
    ),
    "name": ("a\x00.npy", lambda p: None, None, "no such file"),
}


@pytest.mark.parametrize(
    ("filename", "write", "key", "message"), REFUSED.values(), ids=REFUSED.keys()
)
@pytest.mark.parametrize("read", [read_tokens, read_covariance])
def test_bad_input_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[..., Any],
    filename: str,
    write: Writer,
    key: str | None,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / filename
    write(path)
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        read(path, key)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    assert ". " not in text
    assert len(text) < len(str(path)) + 220
    assert not Path("unpickled").exists()


def test_the_trap_would_have_worked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.array([[Trap()]]))
    np.load("a.npy", allow_pickle=True)
    assert Path("unpickled").exists()


@pytest.mark.parametrize("name", ["missing.npy", "nowhere/missing.csv", "missing"])
def test_missing_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError, match=f"{name}: there is no such file"):
        read_tokens(tmp_path / name)


@pytest.mark.parametrize(
    ("method", "error", "message"),
    [
        ("open", PermissionError(13, "Permission denied"), "Permission denied"),
        ("exists", PermissionError(13, "Permission denied"), "Permission denied"),
        ("open", OSError(5, "Input/output error"), "Input/output error"),
    ],
)
def test_files_that_the_system_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, error: OSError, message: str
) -> None:
    # The administrator may read anything, so a file's mode alone cannot provoke this in a test.
    def refuse(*_: object, **__: object) -> None:
        raise error

    path = tmp_path / "a.npy"
    np.save(path, NUMBERS)
    monkeypatch.setattr(Path, method, refuse)
    with pytest.raises(ValueError, match=rf"a\.npy cannot be read \({message}\)$"):
        read_tokens(path)


@pytest.mark.parametrize("extension", ["npy", "npz", "pt"])
def test_no_damage_escapes_as_another_error(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"a.{extension}"
    ACCEPTED[extension if extension != "npz" else "npz, one array"][1](path)
    intact = path.read_bytes()
    generator = np.random.default_rng(0)
    refused = 0
    for _ in range(150):
        damaged = bytearray(intact)
        for place in generator.integers(len(damaged), size=4):
            damaged[place] = generator.integers(256)
        path.write_bytes(damaged)
        try:
            read_tokens(path)
        except ValueError:
            refused += 1
    assert refused > 15


def test_longdouble_beyond_float64_is_not_finite(tmp_path: Path) -> None:
    large = np.array([[np.finfo(np.longdouble).max]])
    if not large.astype(object)[0, 0] > np.finfo(np.float64).max:
        pytest.skip("longdouble is float64 here")
    np.save(tmp_path / "a.npy", large)
    with pytest.raises(ValueError, match="must hold finite numbers"):
        read_tokens(tmp_path / "a.npy")


def test_covariance_is_returned_as_stored(tmp_path: Path) -> None:
    # Not symmetric on purpose: that is for the user of the matrix to refuse.
    matrix = np.array([[2.0, 1.0], [0.5, 2.0]])
    np.savez(tmp_path / "a.npz", v=matrix, w=matrix + 1)
    np.testing.assert_array_equal(read_covariance(tmp_path / "a.npz", key="v"), matrix)


def test_covariance_must_be_square(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", NUMBERS)
    with pytest.raises(
        ValueError, match=r"a\.npy must hold a square matrix; got 2 rows and 3 columns"
    ):
        read_covariance(tmp_path / "a.npy")


def test_example_is_the_shipped_file() -> None:
    tokens, embeddings = example_tokens()
    assert tokens == ["call", "me", "is", "##hma", "##el", ".", "some", "years"]
    assert embeddings.shape == (8, 384)
    assert embeddings.dtype == np.dtype(np.float64)
    assert np.linalg.matrix_rank(embeddings) == 8
    # First entries of the model's own table, so that another file cannot take its place.
    expected = np.array([0.00657116, 0.01106204, -0.02887948, 0.0036348, -0.09729796])
    np.testing.assert_allclose(embeddings[0, :5], expected, rtol=1e-5)
    with resources.as_file(resources.files("shaped_attention") / "data" / inputs._EXAMPLE) as path:
        np.testing.assert_array_equal(read_tokens(path), embeddings)
        with np.load(path, allow_pickle=False) as stored:
            assert stored["embeddings"].dtype == np.dtype(np.float32)
            assert "Apache-2.0" in str(stored["source"])
            assert "tokens 1 to 8" in str(stored["source"])
