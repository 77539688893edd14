"""The server that keeps everything, as the connections of a process see it."""
