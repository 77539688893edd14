"""Checks that find the causes of a difference. Each claims its share of the difference in turn."""
