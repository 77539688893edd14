"""
The totals (ledger): hourly sums of the cost of AI calls by dimension, such as user and model.

One transaction writes the sums and the number of the last counted record, so no record is counted twice or
left out. The totals can be rebuilt from the log.
"""
