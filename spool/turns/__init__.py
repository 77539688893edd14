"""Who works next, and before whom: turns of requests by key, the priority of threads, and what they share."""
