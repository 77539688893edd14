"""The fleet: the state of each coding assistant on each device, the inventory of expected devices, and coverage."""
