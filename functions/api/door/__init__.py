"""The door: what every surface needs of HTTP. Keys, limits, bodies, errors, and both ways of answering on Lambda."""
