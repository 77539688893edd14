"""Programs between a client and Tollhouse: a relay, a server that adds a key, a proxy."""
