"""Models in torch: a trainable shaped transformer, recorded covariances, attention scores."""
