"""The commands: a file for each, and `main`, which knows them by name."""
