"""Pages of the group Money, a journey each."""
