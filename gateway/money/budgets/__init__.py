"""
Budgets: actual spend, forecasts for the period, and the thresholds that actual spend or a forecast crosses.
"""
