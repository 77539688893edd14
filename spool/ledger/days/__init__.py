"""Sums of days: those that can be priced, those that a provider bills, and rollups of several days."""
