"""Whether a module was initialised as its configuration says."""
