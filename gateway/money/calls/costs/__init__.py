"""The calls of the operator API on costs: sums, reports, budgets, and what a change or forecast is made of."""
