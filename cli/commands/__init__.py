"""One command per file. `main` imports each only when it is used."""
