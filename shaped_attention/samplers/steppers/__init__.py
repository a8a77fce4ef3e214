"""Steppers: what moves a batch of paths by a step, one file each; `choice` chooses among them."""
