"""Service holders, one for each area. A handler names the holder class that it needs."""
