"""``python -m shaped_attention``: the command line."""

from shaped_attention.commands.main import main

if __name__ == "__main__":
    main(prog_name="python -m shaped_attention")
