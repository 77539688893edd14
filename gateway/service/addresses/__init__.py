"""The table of addresses: one row for each, by area, and the applications that are made from the rows."""
