"""``python -m symbolic``: what it prints, and its exit status."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from click.testing import CliRunner
from sympy import expand, sympify

import symbolic as sy
from symbolic import commands
from symbolic import proof as proof_module
from symbolic.claims.ledger import Verdict, claims
from symbolic.commands import main


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def test_derive_prints_drift_diffusion_and_proof() -> None:
    status, text = run("derive", "--block", "attention", "--tokens", "2")
    assert status == 0
    assert "b[0,0] = gamma**2/(16*tau_0**2) * V[0,0]*(V[0,0] - 2*V[0,1] + V[1,1])**2" in text
    assert "Sigma[0,1;0,1] = " in text
    assert text.rstrip().endswith("zero polynomial")
    assert max(map(len, text.splitlines())) <= 104


def test_derive_as_latex() -> None:
    status, text = run("derive", "--block", "attention", "--tokens", "3", "--latex")
    assert status == 0
    assert text.count(r"\begin{align*}") == text.count(r"\end{align*}") == 2
    assert r"b_{00} &= \frac{\gamma^{2}}{81 \tau_{0}^{2}}" in text
    assert "% proven: 45 entries" in text


LAYERS = [
    ("attention", "causal", [sy.ShapedAttention(mask="causal")]),
    ("mlp", "full", [sy.ShapedMLP()]),
    ("transformer", "full", [sy.ShapedAttention(), sy.ShapedMLP()]),
]


@pytest.mark.parametrize(("block", "mask", "layer"), LAYERS)
def test_the_printed_terms_add_up_to_the_coefficients(
    block: str, mask: str, layer: list[sy.Block]
) -> None:
    """Read the text output back: every printed entry is the derived coefficient."""
    _, text = run("derive", "--block", block, "--tokens", "3", "--all", "--mask", mask)
    entries: dict[str, str] = {}
    name = ""
    for line in text.partition("Closed form")[0].splitlines():
        stripped = line.strip()
        if " = " in stripped and stripped.split(" = ")[0].count(" ") == 0:
            name, _, rest = stripped.partition(" = ")
            entries[name] = rest
        elif line.startswith("      ") and name:
            entries[name] += " " + stripped
    limit = sy.derive(layer, 3)
    assert len(entries) == 6 + 21
    symbols = {str(s): s for s in limit.drift.free_symbols | limit.diffusion.free_symbols}
    symbols["V"] = limit.algebra.v_expressions
    for name, printed in entries.items():
        numbers = [int(c) for c in name if c.isdigit()]
        if name.startswith("b["):
            derived = limit.drift[numbers[0], numbers[1]]
        else:
            a, b, c, d = numbers
            derived = limit.diffusion_entry((a, b), (c, d))
        assert expand(sympify(printed, locals=symbols) - derived) == 0, name


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--block", "mlp", "--tokens", "2"), "b[0,1] = gamma**2*(c_minus - c_plus)**2 * "),
        (("--block", "transformer", "--tokens", "2"), "proven: 13 entries"),
        (("--block", "transformer", "--tokens", "2", "--output-projection"), "proven: 13"),
        (("--block", "attention", "--tokens", "2", "--heads", "2", "--biases"), "s_Q"),
        (("--block", "attention", "--tokens", "2", "--correction"), "b1[0,0] = -gamma**2/(32*tau"),
        (
            ("--block", "attention", "--tokens", "2", "--output-projection"),
            "4*gamma**2 * V[0,0]**2",
        ),
        (("--block", "attention", "--tokens", "7", "--points", "1"), "true at 1 random rational V"),
    ],
)
def test_derive_variants(arguments: tuple[str, ...], expected: str) -> None:
    status, text = run("derive", *arguments)
    assert status == 0, text
    assert expected in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--block", "rnn", "--tokens", "2"),
            "block must be one of attention, mlp, transformer; got 'rnn'",
        ),
        (("--block", "attention", "--tokens", "6"), "tokens must be at most 5"),
        (
            ("--block", "attention", "--tokens", "2", "--mask", "banded"),
            "mask must be full or causal",
        ),
        (("--block", "attention", "--tokens", "2", "--no-centring"), "no limit: the mean of"),
        (
            ("--block", "attention", "--tokens", "2", "--temperature-power", "p"),
            "a rational number",
        ),
        (("--block", "transformer", "--tokens", "2", "--correction"), "for a single block"),
        (("--block", "attention", "--tokens", "2", "--points", "1", "--latex"), "points: with"),
        (
            ("--block", "attention", "--tokens", "2", "--points", "1", "--temperature-power", "1"),
            "points: there is no closed form to compare with",
        ),
        (("--block", "mlp", "--tokens", "2", "--heads", "2"), "no effect with --block mlp"),
        (("--block", "mlp", "--tokens", "2", "--mask", "causal"), "no effect with --block mlp"),
    ],
)
def test_bad_arguments_exit_with_two(arguments: tuple[str, ...], message: str) -> None:
    status, text = run("derive", *arguments)
    assert status == 2
    assert message in text
    assert "Traceback" not in text


def test_a_disproof_exits_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the closed form of the diffusion doubled."""
    right = proof_module.closed_form

    def wrong(block: object, algebra: object) -> object:
        drift, diffusion = right(block, algebra) or (None, None)  # type: ignore[arg-type]
        return drift, 2 * diffusion  # type: ignore[operator]

    monkeypatch.setattr(proof_module, "closed_form", wrong)
    status, text = run("derive", "--block", "attention", "--tokens", "2")
    assert status == 1
    assert "DISPROVED: diffusion entry (0, 0)" in text


def test_expand() -> None:
    status, text = run("expand", "--order", "2", "--tokens", "2")
    assert status == 0
    assert "degree 1, order n^-(1/2): (x - mu[1])/m" in text
    assert "(noise of order 1/sqrt n); mean of order 1/n (drift)" in text
    assert "a limit exists" in text
    status, text = run("expand", "--order", "1", "--no-centring")
    assert status == 0
    assert "kills the limit; the centring removes it" in text
    assert "no limit: the mean" in text
    assert run("expand", "--order", "-1")[0] == 2
    assert (
        "tokens must be at most 8 to print matrices; got 9"
        in run("expand", "--order", "1", "--tokens", "9")[1]
    )


def test_claims() -> None:
    status, text = run("claims", "--only", "softmax")
    assert status == 0
    assert "FALSE  softmax-second-derivative" in text
    assert "no verdict has changed" in text
    status, text = run("claims", "--only", "ReLU", "--latex")
    assert status == 0
    assert r"\begin{longtable}" in text
    assert run("claims", "--only", "nothing")[0] == 2


def test_a_changed_verdict_exits_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: another verdict on record."""
    first, *rest = claims()[:3]
    changed = (replace(first, expected=Verdict.FALSE), *rest)
    monkeypatch.setattr(commands, "claims", lambda: changed)
    for options in ((), ("--latex",)):
        status, text = run("claims", *options)
        assert status == 1
        assert "changed" in text.lower()


def test_symbolic_needs_no_torch() -> None:
    """The engine, the ledger and the commands import sympy and click, and nothing heavier."""
    code = (
        "import sys, symbolic, symbolic.claims, symbolic.commands; "
        "print([m for m in ('torch', 'numpy', 'scipy', 'shaped_attention') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_it_runs_as_a_module() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "symbolic", "derive", "--block", "attention", "--tokens", "1"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "b[0,0] = 0" in result.stdout
