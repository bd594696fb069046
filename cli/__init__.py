"""The command line client. It talks HTTP to a server, and knows nothing of how the server stores data."""
