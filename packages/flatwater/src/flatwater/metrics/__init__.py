"""Named numbers: records of a round and the sinks they go to."""
