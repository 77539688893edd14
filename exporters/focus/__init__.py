"""AI cost in the columns of FOCUS."""
