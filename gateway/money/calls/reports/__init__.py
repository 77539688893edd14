"""Writes the reports of views that people get each week or month, and has them sent."""
