"""How long a function takes from a fresh interpreter to its first answer, from its built artifact."""
