"""The calls of the operator API on the installation as a whole."""
