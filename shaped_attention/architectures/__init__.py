"""Models that people use, at initialisation: from a configuration to the law of their tokens."""
