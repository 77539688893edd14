"""Gateway formats into records, one module a format. Nothing here waits, and no prompt leaves a decoder."""
