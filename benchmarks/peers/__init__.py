"""Other servers of the protocol, started on loopback for comparison. Their packages come from the lock file here."""
