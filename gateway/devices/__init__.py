"""Devices: enrolment, device keys, states, and the assignment of records to devices."""
