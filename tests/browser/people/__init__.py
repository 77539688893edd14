"""What people may do and see, a journey each."""
