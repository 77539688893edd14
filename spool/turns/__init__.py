"""Who works next, and before whom: turns of requests by key, and the priority of threads."""
