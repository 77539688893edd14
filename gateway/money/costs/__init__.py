"""Cost queries and their results, for keys, people, assistants, commands and schedules."""
