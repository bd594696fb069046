"""Is a deployment healthy? `command` and `cloud` gather facts; `rules` decides purely what they mean."""
