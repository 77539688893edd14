"""
The totals (ledger): hourly sums of the cost of AI calls, by user, team, model and other dimensions.

The ledger reads the log like a route does. One transaction writes the sums together with the record number up
to which they count, so no record is counted twice or left out. The whole file can be rebuilt from the log.
"""
