"""Costs of assistants' plans and the calls that they cover, calculated from the totals at query time."""
