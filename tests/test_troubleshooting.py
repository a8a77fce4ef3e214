"""Each message that the page of troubleshooting lists is printed by the code below its heading."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from tests.test_pages import BLOCK, DOCS

PAGE = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
HEADING = re.compile(r"^### (.*)$", re.MULTILINE)
WITHOUT_MESSAGE = {
    "The first call takes half a minute",
    'The verdict says "Not resolved"',
    # These depend on the machine; `tests/test_memory.py` and `tests/test_device_weights.py`
    # cause them.
    "`the memory of … is full`",
    "`samples must be at most … in this machine's … GiB of memory`",
}


def sections(page: str) -> dict[str, str]:
    """The text below each heading, by its words."""
    found = list(HEADING.finditer(page))
    starts = [match.end() for match in found]
    ends = [match.start() for match in found[1:]] + [len(page)]
    return {match[1]: page[a:b] for match, a, b in zip(found, starts, ends, strict=True)}


def missing(page: str) -> list[str]:
    """Headings whose message is in no output below them; `…` stands for any words."""
    faults = []
    for heading, text in sections(page).items():
        if heading in WITHOUT_MESSAGE:
            continue
        parts = map(re.escape, heading.strip("`").split("…"))
        printed = " ".join(output for _, output in BLOCK.findall(text))
        if not re.search(".*".join(parts), printed):
            faults.append(heading)
    return faults


def test_every_message_is_printed_below_its_heading():
    """The outputs are those of the code: `tests/test_pages.py` runs it and compares."""
    assert missing(PAGE) == []
    assert set(sections(PAGE)) >= WITHOUT_MESSAGE
    assert len(sections(PAGE)) > 20


@pytest.mark.parametrize(("heading", "count"), [("`gamma … 1.5`", 0), ("`gamma … 2.5`", 1)])
def test_a_message_that_is_not_printed_is_seen(heading, count):
    page = f"### {heading}\n\n```python\nf()\n```\n\n```text\ngamma is 1.5\n```\n"
    assert len(missing(page)) == count


def test_no_message_is_listed_twice():
    names = sorted(HEADING.findall(PAGE))
    assert all(first != second for first, second in pairwise(names))
