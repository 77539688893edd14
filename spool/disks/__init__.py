"""The disks under what is kept: whether they are full, and what a flush to them is worth."""
