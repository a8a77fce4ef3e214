"""The figures of the sphere: a file for the data of each, and the catalogue of all by name."""
