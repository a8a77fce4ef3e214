"""The groups of commands, below `shaped_attention.cli`."""
