"""The limit of a block, derived from the text of its branch."""
