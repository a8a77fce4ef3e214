"""The checks that `check_block` runs."""
