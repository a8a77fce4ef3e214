"""Ctrl-C, and the signal by which batch systems end a job, also while libraries load."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interrupts(*numbers: int, held: bool = False) -> Iterator[list[int]]:
    """Raise KeyboardInterrupt at these signals, and give the list of those that arrived.

    While a library loads, an interrupt can be lost, or turned into an error of the library. Hence
    `held`: the first interrupt waits for the end of the block. Elsewhere the list tells whether
    there was one. Signals that the program was started to ignore stay ignored.
    """
    received: list[int] = []

    def interrupt(number: int, _: Any) -> None:
        received.append(number)
        if not held or len(received) > 1:
            raise KeyboardInterrupt

    before = {
        number: signal.signal(number, interrupt)
        for number in numbers
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if held and received:
        raise KeyboardInterrupt
