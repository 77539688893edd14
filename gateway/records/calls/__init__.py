"""The calls of the operator API on the log: one record, the newest ones, and what happens now."""
