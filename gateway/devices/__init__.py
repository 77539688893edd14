"""Devices: who may enrol, whose key is whose, and in whose name a record stands."""
