"""Is a deployment well? Facts are gathered by `server` and `cloud`; what they mean is decided purely, in `rules`."""
