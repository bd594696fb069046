"""One file per resource; each route translates, calls one verb of `headrace.log`, and translates back."""
