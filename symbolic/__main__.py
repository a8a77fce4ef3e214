"""Entry point of ``python -m symbolic``: derive a limit, or print the ledger of claims."""

from symbolic.commands import main

if __name__ == "__main__":
    main(prog_name="python -m symbolic")
