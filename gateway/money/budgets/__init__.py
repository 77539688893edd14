"""Budgets: what was spent of them, what the period will come to, and which thresholds that crosses."""
