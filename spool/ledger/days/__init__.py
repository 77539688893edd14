"""Sums of days: what can be priced, what a provider bills, and rollups."""
