"""The command line client: it speaks HTTP and knows nothing of how the server stores things."""
