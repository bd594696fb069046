"""The surface of streams over HTTP: its routes, what they read of a request, and how they answer."""
