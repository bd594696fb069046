"""The pure part of feature tables: from documents and events to states and values, without I/O and without a clock."""
