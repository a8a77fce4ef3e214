"""What is measured on V: distances of laws, errors by width, expectations, stopping times."""
