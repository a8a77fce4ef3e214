"""The groups of commands, below `shaped_attention.commands.main`."""
