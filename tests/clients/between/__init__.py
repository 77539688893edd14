"""What stands between a client and Tollhouse: a network, a way that adds a key, a proxy."""
