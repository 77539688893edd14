"""
The ledger: what AI costs, by whom and for what, summed by the hour of the call.

It is a reader of the log like a route: its sums and the number they reach move in one transaction, so nothing
is counted twice or left out, and the whole file can be made again from the log.
"""
