"""A lake under load, while processes are killed and connections fail."""
