"""The exact chain of a block, derived from its `branch` by lazily revealed Gaussian matrices."""
