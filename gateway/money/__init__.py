"""Costs of calls, and budgets, notes, findings and recommendations about them."""
