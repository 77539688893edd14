"""Devices and clusters that send less than they did."""
