"""Whole models at step 0: covariances, loss and gradients from a configuration."""
