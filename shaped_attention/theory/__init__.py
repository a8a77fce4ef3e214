"""Theory without sampling: the drift and the diffusion of the limit."""
