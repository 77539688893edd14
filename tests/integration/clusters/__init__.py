"""Clusters whose agents report to Tollhouse. The answers of the clusters themselves are simulated."""
