"""The figures of the sphere: the data of most, and the catalogue of all by name."""
