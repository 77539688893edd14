"""The types of enforcers, one file each."""
