"""The pages of the documentation: their Python runs in order and prints what they say."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import shaped_attention as sa
from shaped_attention.commands.main import main

DOCS = Path(__file__).parent.parent / "docs"
README = (DOCS.parent / "README.md").read_text(encoding="utf-8")
PAGES = [
    "tutorial",
    "your-model",
    "blocks",
    "results",
    "sphere",
    "lazy-weights",
    "derivation",
    "exact-laws",
    "numbers",
    "randomness",
    "troubleshooting",
    "sweeps",
    "install",
]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e[-+]?\d+)?")


def run(page: str) -> list[tuple[str, str]]:
    """What each block of a page should print, and what it prints."""
    names: dict[str, object] = {"__name__": "page"}
    found = []
    for number, (code, expected) in enumerate(BLOCK.findall(page), start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"block {number}", "exec", dont_inherit=True), names)
        found.append((expected.strip(), printed.getvalue().strip()))
    return found


def agree(expected: str, printed: str) -> bool:
    """Equal but for the last digit of each number (and the spaces that it moves)."""

    def words(text: str) -> list[str]:
        return NUMBER.sub("#", text).split()

    def units(number: str) -> float:
        mantissa, _, exponent = number.partition("e")
        return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))

    if words(expected) != words(printed):
        return False
    pairs = zip(NUMBER.findall(expected), NUMBER.findall(printed), strict=True)
    return all(
        first == second or ("." in first and abs(float(first) - float(second)) < 1.5 * units(first))
        for first, second in pairs
    )


@pytest.mark.parametrize("name", PAGES)
def test_the_blocks_run_and_print_what_the_page_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    handler = signal.getsignal(signal.SIGINT)
    # A page is a session of a reader, who may use torch's generator.
    with torch.random.fork_rng(devices=[]):
        blocks = run((DOCS / f"{name}.md").read_text())
    # The import of dask_jobqueue replaces the handler.
    signal.signal(signal.SIGINT, handler)
    assert blocks
    for expected, printed in blocks:
        assert agree(expected, printed), (
            f"the page says\n{expected}\nbut this is printed\n{printed}"
        )


def test_the_readme_runs_and_sees_no_difference():
    """Its Python at full size: the verdicts are those that its comments promise."""
    printed = "".join(text for _, text in run(README))
    assert printed.count("Not resolved: ") == 2


def test_tokens_of_olmo_2_grow_like_the_root_of_the_layer():
    """Each branch ends in a norm and adds 1 to the mean square: sqrt(2 l) after l layers."""
    law = sa.simulate_model("olmo-2-7b", 4, samples=8, seed=0, entropy=False, progress=False)
    size = sa.model_summary(law)["size"].sel(level="median").to_numpy()
    layers = np.arange(1, 33)
    # The command's band of single models after 32 layers is 7.90 to 8.07; sqrt(l) would be 5.7.
    assert np.abs(size[1:] / np.sqrt(2 * layers) - 1).max() < 0.03


COMMAND = re.compile(
    r"^```bash\n((?:shaped-attention [^\n]*\n)+)```\n\n```text\n(.*?)^```$", re.M | re.S
)


@pytest.mark.parametrize("number", range(7))
def test_the_commands_of_a_symptom_print_what_the_page_says(number: int) -> None:
    """Lines of a command that ``grep -E`` keeps, for each command of a symptom."""
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    commands, expected = page.partition("\n## Messages")[0].split("\n### ")[number + 1], []
    for lines, shown in COMMAND.findall(commands):
        printed = []
        for line in lines.splitlines():
            command, _, kept = line.partition(" | grep -E ")
            done = CliRunner().invoke(main, shlex.split(command)[1:], catch_exceptions=False)
            assert done.exit_code == 0, done.output
            wanted = re.compile(shlex.split(kept)[0])
            printed += [x for x in done.stdout.splitlines() if wanted.search(x)]
        expected.append(shown)
        assert agree(shown, "\n".join(printed)), printed
    assert expected


def test_no_output_stands_without_its_block():
    """Every block of text on these pages is one that the test above compares."""
    for name in PAGES:
        page = (DOCS / f"{name}.md").read_text()
        compared = sum(
            bool(expected) for _, expected in BLOCK.findall(page) + COMMAND.findall(page)
        )
        assert page.count("\n```text\n") == compared, name


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("KS 0.123", "KS  0.124", True),
        ("KS 0.123", "KS 0.125", False),
        ("4000 samples", "4001 samples", False),
        ("1 2", "1 2 3", False),
        ("", "1", False),
    ],
)
def test_what_counts_as_the_same(expected, printed, same):
    """Negative controls: a number, a word or a line that differs is seen."""
    assert agree(expected, printed) == same
    blocks = run(f"```python\nprint({printed!r})\n```\n\n```text\n{expected}\n```\n")
    assert agree(*blocks[0]) == same
