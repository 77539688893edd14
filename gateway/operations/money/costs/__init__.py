"""Operator API of costs: totals, reports, changes, forecasts and what-if questions."""
