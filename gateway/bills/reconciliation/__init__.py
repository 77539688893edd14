"""What providers billed against what was counted: the difference, split exactly, and what explains it."""
