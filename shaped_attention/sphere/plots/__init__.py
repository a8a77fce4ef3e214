"""Figures drawn from the data of `shaped_attention.sphere`, one file for each kind."""
