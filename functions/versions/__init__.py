"""Removes versions of the functions that no rollback needs."""
