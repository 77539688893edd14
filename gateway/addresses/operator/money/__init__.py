"""What people ask of money, and what they keep to judge it."""
