"""The query engine: `language` (pure) and `engine` (over runs, segments and the tail)."""
