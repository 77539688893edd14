"""Tests of the table of addresses."""
