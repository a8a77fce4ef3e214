"""Figures of the sphere: the data of most of them, and the catalogue of all by name."""
