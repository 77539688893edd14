"""Views over a lake for readers that speak SQL, made from the destination's settings."""
