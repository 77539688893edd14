"""SQL views over a data lake, made from the destination's settings."""
