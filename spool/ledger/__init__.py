"""
The totals (ledger): hourly sums of the cost of AI calls by dimension.

One transaction writes the sums together with the record number up to which they count, so no record is
counted twice or left out. All of it can be rebuilt from the log.
"""
