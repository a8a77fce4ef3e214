"""Files: reading token arrays and covariances, and writing files whole or not at all."""
