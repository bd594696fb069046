"""Feature tables: events are pushed to lanes, aggregations over them are read by key."""
