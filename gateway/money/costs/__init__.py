"""Cost queries and their answers, for keys, people, assistants, commands and schedules."""
