"""Scheduling: fair turns of requests, thread priorities, and data for several threads."""
