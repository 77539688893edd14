"""Tests that name the cause of a difference, in the order in which they claim their share of it."""
