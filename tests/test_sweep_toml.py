"""Sweeps from TOML files: what they may hold, and faults with their lines."""

from __future__ import annotations

import re

import numpy as np
import pytest

from shaped_attention.sweep import Sweep, SweepFaultsError, Target, read_sweep

START = "[fixed]\ntokens = 2\nwidth = 20\ndepth = 10\nstep = 0.05\nlayer = 'attention'\n"


GAMMA = START + "gamma = 0.3\n"


VALID = """\
samplers = ["chain", "sde"]
samples = 20
block = 8
seed = 3
keep = "observables"
observables = ["rho[0,1]"]
fractions = [0.5, 1.0]
device = "cpu"
dtype = "float64"
seconds = 60.0
[fixed]
layer = "transformer"
tokens = 2
rho = 0.3
scale = 2.0
depth = 10
step = 0.025
radius = 100.0
heads = 1
mask = "causal"
[axes]
width = [20, 40]
gamma = { linspace = [0.1, 0.3, 3] }
tau0 = { logspace = [0.5, 2.0, 3] }
[target]
observable = "stopped"
half_width = 0.1
level = 0.95
first = 2
"""


def faults_of(text, folder):
    path = folder / "sweep.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SweepFaultsError) as caught:
        read_sweep(path)
    assert f"{path}: {len(caught.value.faults)} fault(s)" in str(caught.value)
    return [sentence for _, sentence in caught.value.faults]


def test_a_valid_file(tmp_path):
    """Every entry arrives; the values of the axes print as they are meant."""
    (tmp_path / "sweep.toml").write_text(VALID)
    sweep = read_sweep(tmp_path / "sweep.toml")
    axes = {"width": [20, 40], "gamma": [0.1, 0.2, 0.3], "tau0": [0.5, 1.0, 2.0]}
    assert (sweep.axes, list(sweep.axes)) == (axes, list(axes))
    assert sweep.fixed == {
        "layer": "transformer", "tokens": 2, "rho": 0.3, "scale": 2.0, "depth": 10, "step": 0.025,
        "radius": 100.0, "heads": 1, "mask": "causal",
    }  # fmt: skip
    assert sweep == Sweep(
        sweep.fixed, axes, ("chain", "sde"), 20, 8, 3, "observables", ("rho[0,1]",), (0.5, 1.0),
        "cpu", "float64", Target("stopped", 0.1, 0.95, 2), 60.0,
    )  # fmt: skip


def test_all_faults_of_a_file_at_once_with_their_lines(tmp_path):
    text = """\
samplers = ["chain", "ode"]
samples = 0
colour = 3
fractions = [
  0.5, 0.5,
]

# keep = "V"
  keep="all"
"dtype" = "float16"
[fixed]
tokens = 2
width = 20  # n = 20
gama = 0.3
depth = 10
heads = 2
layer = "attention"
[axes]
gamma = { linspace = [0.1, 0.2] }
tau0 = { logspace = [-1, 2, 3] }
rho = []
scale = [1.0, 1.0]
heads = [1, 2]
c_plus = { range = [0, 1, 2] }
"""
    expected = {
        1: "samplers=['chain', 'ode']: some of network, chain, sde",
        2: "samples must be an integer >= 1; got 0",
        3: "colour: not an entry of a sweep; one of samplers, ",
        4: "fractions=[0.5, 0.5]: increasing numbers in [0, 1]",
        9: "keep must be one of observables, V, reductions; got 'all'",
        10: "dtype='float16': 'float64' or 'float32' is needed",
        14: "gama: not a parameter; one of ",
        19: "gamma={'linspace': [0.1, 0.2]}: [first, last, number] is needed",
        20: "tau0={'logspace': [-1, 2, 3]}: [first, last, number] is needed",
        21: "rho must be a list of distinct values; got []",
        22: "scale must be a list of distinct values; got [1.0, 1.0]",
        23: "heads: both fixed and an axis",
        24: "c_plus={'range': [0, 1, 2]}: a list, {linspace = [first, last, number]} or logspace",
    }
    found = faults_of(text, tmp_path)
    for line, sentence in expected.items():
        assert sum(f.startswith(f"line {line}: {sentence}") for f in found) == 1, (line, found)
    assert len(found) == len(expected)


def test_misspelt_keys_and_values_in_one_round(tmp_path):
    """Keys at top level, in all tables, and values of all parameters, with what was meant."""
    text = """\
sample = 20
seed = -1
samplers = 3
[fixed]
layer = "attention"
tokens = 2
width = 20
depth = 10
step = 0.05
key_sise = 3
gamma = 1.5
heads = 0
query_bias = inf
[axes]
tau = [0.5, 1.0]
tau0 = [1.0, -2.0]
[target]
observable = "rho"
halfwidth = 0.1
"""
    expected = {
        1: "sample: not an entry of a sweep; .*did you mean 'samples'",
        2: "seed must be an integer >= 0; got -1",
        3: "samplers=3: a list of names",
        10: "key_sise: not a parameter; .*did you mean 'key_size'",
        11: "gamma must be in [0, 1]; got 1.5",
        12: "heads must be an integer >= 1; got 0",
        13: "query_bias must be a finite number; got inf",
        15: "tau: not a parameter; .*did you mean 'tau0'",
        16: "tau0 must be positive and finite; got -2.0",
        19: "target.halfwidth: not an entry of a target; .*did you mean 'half_width'",
    }
    found = faults_of(text, tmp_path)
    assert len(found) == len(expected)
    for line, sentence in expected.items():
        assert any(re.match(f"line {line}: {sentence}", fault) for fault in found), (line, found)


FILES = {
    "syntax": ("[fixed\n", r"line 1"),
    "layer": (GAMMA.replace("layer = 'attention'\n", ""), "^layer: a value is needed, fixed or as"),
    "twice": (GAMMA + "gamma = 0.2\n", "Cannot overwrite a value"),
    "UTF-8": (b"samples = 4\n# \xff\n", "utf-8|UTF-8"),
    "fractions": ("fractions = [0.33, 1.0]\n" + GAMMA, "^line 1: fractions: 0.33"),
    "gamma": ("samples = 9\n" + START, "^line 2: gamma: a value is needed"),
    "gamma's value": (GAMMA.replace("0.3", "3.0"), r"^line 7: gamma must be a number; got 3.0"),
    "axis of a table": (START + "[axes]\nrho = [0.1]\ngamma = [0.1, 3.0]\n", "^line 9: gamma=3"),
    "space": (START + "[axes]\ngamma = { linspace = [0.1, 0.2] }\n", "^line 8: gamma="),
    "infinite": (START + "[axes]\ngamma = { linspace = [0.1, inf, 3] }\n", "^line 8: gamma="),
    "text": (START + "[axes]\ngamma = { linspace = [0.1, 'x', 3] }\n", "^line 8: gamma="),
    "value": (START + "[axes]\ngamma = 0.3\n", "^line 8: gamma=0.3: a list"),
    "long header": (START + "[axes.gamma]\nlinspace = [0.1]\n", "^line 7: gamma="),
    "dotted": ("samples = 9\nfixed.gama = 0.3\nfixed.gamma = 0.3\n", "^line 2: gama: not a par"),
    "fixed": ("samples = 9\nfixed = 3\n", r"^line 2: fixed=3: a table \[fixed\]"),
    "target": ("target = 5\n" + GAMMA, "^line 1: target=5"),
    "target's entry": (GAMMA + "[target]\nwidth = 5\n",
                       "^line 9: target.width: not an entry of a target; .*mean 'half_width'"),
    "target's level": (
        GAMMA + "[target]\nobservable = 'stopped'\nhalf_width = 0.1\nlevel = 7.0\n",
        r"^line 8: target.level=7.0|^line 11: target.level=7.0",
    ),
    "samplers": ("seed = 1\nsamplers = 5\n" + GAMMA, "^line 2: samplers=5"),
    "no covariance": (START.replace("tokens = 2", "covariance = 'no.csv'") + "gamma = 0.3\n",
                      r"^line 2: .*no\.csv: there is no such file"),
    "no tokens": (START.replace("tokens = 2", "token_file = 'no.csv'") + "gamma = 0.3\n",
                  r"^line 2: .*no\.csv: there is no such file"),
    "folder": (START.replace("tokens = 2", "token_file = '.'") + "gamma = 0.3\n",
               r"^line 2: .*this is a directory"),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_faults_of_a_file(case, tmp_path):
    """Each fault is reported once."""
    text, sentence = FILES[case]
    found = faults_of(text, tmp_path)
    assert re.search(sentence, found[0]), found
    assert len(found) == 1 or case in ("dotted", "fixed"), found


LINES = {
    "text of many lines": (GAMMA + 'mask = """\ngama = 1\n[axes]\n"""\ngama = 2\n', 12, "gama"),
    "list of many lines": ("fractions = [\n  0.5,  # samples = 3\n  1.0]\nsamples = 0\n" + GAMMA,
                           4, "samples=0"),
    "its beginning": ("samples = 9\nfractions = [\n  0.5,\n  0.5,\n]\n" + GAMMA, 2, "fractions="),
    "comment": (GAMMA + "# [axes]\n# gama = 1\ngama = 2  # gama = 3\n", 10, "gama"),
    "key with a space": (GAMMA + '"a b" = 1\n', 8, "a b: not a parameter"),
    "key with an escape": (GAMMA + '"g\\u0061ma" = 1\n', 8, "gama: not a parameter"),
    "dotted key": ("samples = 9\nfixed . \"gama\" = 1\n" + GAMMA[8:].replace("\n", "\nfixed.", 5)
                   .replace("tokens", "fixed.tokens"), 2, "gama: not a parameter"),
    "header": (GAMMA + "[ 'axes' ]\nrho = []\n", 9, r"rho=\[\]"),
    "inline table": ("samples = 9\naxes = { rho = [] }\n" + GAMMA, 2, r"rho=\[\]"),
    "CRLF": (("samples = 9\nseed = -1\n" + GAMMA).replace("\n", "\r\n"), 2, "seed=-1"),
}  # fmt: skip


@pytest.mark.parametrize("case", LINES)
def test_lines_of_faults(case, tmp_path):
    """Whatever way of TOML an entry is written in, its first line is named."""
    text, line, sentence = LINES[case]
    (found,) = [fault for fault in faults_of(text, tmp_path) if "mask=" not in fault]
    assert re.match(f"line {line}: {sentence}", found), found


def test_a_missing_file(tmp_path):
    with pytest.raises(SweepFaultsError, match=r"no\.toml: No such file"):
        read_sweep(tmp_path / "no.toml")


def test_matrices_beside_the_file(tmp_path, monkeypatch):
    """Found from any folder; a start given twice is refused."""
    monkeypatch.chdir("/")
    tokens = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]])
    np.savetxt(tmp_path / "x.csv", tokens, delimiter=",")
    np.save(tmp_path / "v.npy", tokens @ tokens.T / 3)
    for line in ("token_file = 'x.csv'", "covariance = 'v.npy'"):
        path = tmp_path / "sweep.toml"
        path.write_text(GAMMA.replace("tokens = 2", line))
        np.testing.assert_allclose(read_sweep(path).cell(()).v0, tokens @ tokens.T / 3)
    both = "token_file = 'x.csv'\ncovariance = [[1.0]]"
    assert len(faults_of(GAMMA.replace("tokens = 2", both), tmp_path)) == 1


JUNK = ("0", "-1", "1e300", "nan", "inf", '""', '"x"', "[]", "[[1]]", "{}", "true", "[1, 'a']",
        "1979-05-27", "{linspace = [1, 2]}", "{logspace = [0, nan, 3]}", "9223372036854775807",
        "{linspace = 3}", "{linspace = [inf, 1, 2]}", '"a:b"', '".:b"')  # fmt: skip


@pytest.mark.parametrize("way", ["values", "characters"])
def test_nothing_but_faults_comes_of_a_corrupted_file(way, tmp_path):
    """A value, or some bytes, put in the place of others, a hundred times and more."""
    random, lines, refused = np.random.default_rng(5), VALID.splitlines(), 0
    entries = [i for i, line in enumerate(lines) if "=" in line]
    path, wrong = tmp_path / "sweep.toml", set()
    trials = [(i, junk) for i in entries for junk in JUNK][::3] if way == "values" else range(150)
    for trial in trials:
        if way == "values":
            i, junk = trial
            changed = [*lines[:i], f"{lines[i].partition('=')[0]}= {junk}", *lines[i + 1 :]]
            text = "\n".join(changed).encode()
        else:
            raw = bytearray(VALID.encode())
            for place in random.integers(len(raw), size=2):
                raw[place : place + 1] = random.bytes(1) if trial % 2 else b""
            text = bytes(raw)
        path.write_bytes(text)
        try:
            read_sweep(path)
        except SweepFaultsError:
            refused += 1
        except Exception as error:
            wrong.add(f"{trial if way == 'values' else text}: {error!r}"[:300])
    assert refused > 50
    assert not wrong, "\n".join(sorted(wrong))
