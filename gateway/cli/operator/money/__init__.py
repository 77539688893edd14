"""Commands about money: totals, reports, bills, budgets and notifications."""
