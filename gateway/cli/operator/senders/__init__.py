"""Commands for those who send: devices and clusters."""
