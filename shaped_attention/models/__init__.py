"""Models in torch: a shaped transformer to train, recorders of covariances, attention scores."""
