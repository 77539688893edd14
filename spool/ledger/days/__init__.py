"""Sums of days: sums that can be priced, sums that a provider bills, and rollups of several days."""
