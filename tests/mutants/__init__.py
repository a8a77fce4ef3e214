"""Single scientific errors which the tests must see, and the command that applies them."""
