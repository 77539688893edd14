"""Checks that find the causes of a difference. Each check in turn claims its share of the difference."""
