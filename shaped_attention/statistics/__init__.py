"""Statistics of V: distances between laws, errors by width, expectations, stopping times."""
