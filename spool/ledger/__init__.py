"""
The totals (ledger): hourly sums of what AI calls cost, by user, team, model and other dimensions.

The ledger reads the log like a route does. One transaction writes the sums and the record number that they
reach, so no record is counted twice or left out. The whole file can be rebuilt from the log.
"""
