"""What changed from one time to another, and what the change is made of."""
