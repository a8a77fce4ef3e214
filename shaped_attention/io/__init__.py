"""Files: token arrays and covariances in, and whatever is written, whole or not at all."""
