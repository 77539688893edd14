"""The calls of the operator API for those who send: devices and clusters."""
