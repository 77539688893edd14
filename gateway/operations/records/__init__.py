"""Operator API handlers for the log: single records, the newest records, and what happens now."""
