"""Clusters whose agents report here, with what a cluster itself answers made up."""
