"""One layer of a deep network, forward and back, recorded in torch and run by compiled code."""
