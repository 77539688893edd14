"""Scheduling of work: fair turns of requests by key, thread priorities, and data that several threads use."""
