"""Budgets: actual spend, forecasts for the period, and the thresholds that either crosses."""
