"""AI costs in the columns of FOCUS."""
