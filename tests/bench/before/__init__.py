"""What a call costs here beside another checkout."""
