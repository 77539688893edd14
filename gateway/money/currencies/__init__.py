"""Rates of currencies: read from files, in force by day, and frozen where a month is closed."""
