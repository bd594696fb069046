"""The commands of the client. `main` imports a module only when one of its commands runs."""
