"""Commands that work on a data directory, each as a client of the operator API."""
