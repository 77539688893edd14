"""Tells people and programs of budgets and insights: channels, when each may send, and the tasks that do it."""
