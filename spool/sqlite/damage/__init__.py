"""What is done about a damaged spool.sqlite: noticed, remembered over a restart, and read as far as it goes."""
