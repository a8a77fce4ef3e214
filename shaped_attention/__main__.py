"""The program, also as ``python -m shaped_attention``."""

import signal
import sys

from shaped_attention.commands.interrupts import interrupts


def program() -> None:
    """Run the command line; an interrupt while it is imported ends it as one does later."""
    try:
        with interrupts(signal.SIGINT, held=True):
            from shaped_attention.commands.main import main
    except KeyboardInterrupt:
        sys.exit(130)
    name = "python -m shaped_attention" if sys.argv[0].endswith("__main__.py") else None
    try:
        main(prog_name=name)
    finally:
        # What is left is the interpreter's end; its status is that of the command.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # An interrupt inside code that a library evaluates from text makes Python end by a signal,
        # although it was handled, until other text is evaluated.
        eval("None")


if __name__ == "__main__":
    program()
