"""Gateways that share a PostgreSQL, and what they find there."""
