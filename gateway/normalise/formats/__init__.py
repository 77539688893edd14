"""Gateway formats to records, one module per format. Nothing here waits, and no prompt leaves a decoder."""
