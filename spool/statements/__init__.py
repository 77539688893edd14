"""
What providers billed or metered, as their reports say it: values, rules, and what is asked of those that keep it.
"""
