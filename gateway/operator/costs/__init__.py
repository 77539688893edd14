"""The calls of the operator API on costs: sums, reports, budgets, and how a change or a forecast is made up."""
