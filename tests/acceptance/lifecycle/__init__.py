"""What an operator does with an installation: reload, restart, back up, hand over."""
