"""Notifications of budgets and insights: the channels, when each may send, and the tasks that send."""
