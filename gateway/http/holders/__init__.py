"""Service holders, one for each area. A handler names the holder that it needs."""
