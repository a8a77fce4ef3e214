"""``python -m symbolic``: what it prints, and its exit status."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from sympy import expand, sympify

import symbolic as sy
from symbolic import commands
from symbolic import proof as proof_module
from symbolic.claims import ledger
from symbolic.claims.ledger import Verdict, claims, notes
from symbolic.commands import main

ROOT = Path(__file__).parents[1]


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


# derive


def test_drift_and_diffusion_as_latex() -> None:
    status, text = run("derive", "--block", "attention", "--tokens", "3", "--latex")
    assert status == 0
    assert text.count(r"\begin{align*}") == text.count(r"\end{align*}") == 2
    assert r"b_{00} &= \frac{\gamma^{2}}{81 \tau_{0}^{2}}" in text
    assert "% proven: 45 entries" in text


@pytest.mark.parametrize(
    ("options", "layer", "tokens"),
    [
        ("attention --tokens 3 --mask causal", [sy.ShapedAttention(mask="causal")], 3),
        ("transformer --tokens 2", [sy.ShapedAttention(), sy.ShapedMLP()], 2),
    ],
)
def test_the_printed_terms_add_up_to_the_coefficients(
    options: str, layer: list[sy.Block], tokens: int
) -> None:
    """Read the text output back: every printed entry is the derived coefficient."""
    _, text = run("derive", "--all", "--block", *options.split())
    entries: dict[str, str] = {}
    name = ""
    for line in text.partition("Closed form")[0].splitlines():
        stripped = line.strip()
        if " = " in stripped and stripped.split(" = ")[0].count(" ") == 0:
            name, _, rest = stripped.partition(" = ")
            entries[name] = rest
        elif line.startswith("      ") and name:
            entries[name] += " " + stripped
    limit = sy.derive(layer, tokens)
    assert len(entries) == {2: 3 + 6, 3: 6 + 21}[tokens]
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
    ("options", "message"),
    [
        ("attention --tokens 6", "tokens must be at most 5"),
        ("attention --tokens 2 --no-centring", "no limit: the mean of"),
        ("mlp --tokens 2 --heads 2", "no effect with --block mlp"),
    ],
)
def test_bad_arguments_exit_with_two(options: str, message: str) -> None:
    status, text = run("derive", "--block", *options.split())
    assert status == 2
    assert message in text


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


# expand


def test_terms_of_the_expansion() -> None:
    status, text = run("expand", "--order", "2", "--tokens", "2")
    assert status == 0
    assert "  row 0: G[0,0]/(4*tau_0) - G[0,1]/(4*tau_0), " in text
    assert "a limit exists" in text
    assert "no limit: the mean" in run("expand", "--order", "1", "--no-centring")[1]


# claims


def test_claims_by_key_source_and_verdict() -> None:
    status, text = run("claims", "--only", "ReLU-nu")
    assert status == 0
    assert "FALSE  relu-nu-printed" in text
    assert "no verdict has changed" in text
    assert r"\begin{longtable}" in run("claims", "--only", "ReLU-nu", "--latex")[1]
    status, text = run("claims", "--source", "003:95")
    assert (status, text.split("\n")[0]) == (0, "PROVEN  svd-terms-orthogonal  003:95")
    text = run("claims", "--source", "003:76-89", "--verdict", "FALSE")[1]
    heads = [line for line in text.split("\n") if line and not line.startswith(" ")]
    assert len(heads) > 1
    assert all(head.startswith("FALSE  ") for head in heads[:-1])
    nothing = "003:1 states nothing: heading\n003:2 is blank\n"
    assert run("claims", "--source", "003:1-2") == (0, nothing)
    assert run("claims", "--source", "005")[0] == 2


def test_a_changed_verdict_exits_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: another verdict on record."""
    first, *rest = claims()[:3]
    changed = (replace(first, expected=Verdict.FALSE), *rest)
    monkeypatch.setattr(commands, "claims", lambda: changed)
    status, text = run("claims")
    assert status == 1
    assert "CHANGED" in text


def test_coverage_ends_with_its_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a line that states nothing is in no passage."""
    monkeypatch.setattr(commands, "judge_all", lambda chosen: map(as_recorded, chosen))
    status, text = run("claims", "--coverage")
    last = text.rstrip("\n").split("\n")[-1]
    assert status == 0
    assert last.startswith(f"{len(notes())} statements at ")
    assert last.endswith("; complete")
    document = ledger.DOCUMENTS["003"]
    monkeypatch.setitem(ledger.DOCUMENTS, "003", replace(document, silent={}))
    status, text = run("claims", "--coverage")
    assert status == 1
    assert "003:1: in 0 passages\n" in text
    assert "INCOMPLETE" in text.rstrip("\n").split("\n")[-1]


def as_recorded(claim: ledger.Claim) -> ledger.Entry:
    return ledger.Entry(claim, ledger.Finding(claim.expected))


def test_symbolic_needs_no_torch() -> None:
    """The engine, the ledger and the commands import sympy and click, and nothing heavier."""
    code = (
        "import sys, symbolic, symbolic.claims, symbolic.__main__; "
        "print([m for m in ('torch', 'numpy', 'scipy', 'shaped_attention') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
