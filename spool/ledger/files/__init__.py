"""
The totals as files of facts: a row for each call, in files that never change and that a manifest names.

`row` makes the row of a record, and `recalculation` its estimate after other prices. `writer` writes and merges files,
changes names in them and prepares them anew. `folder` stores them with their manifest. `snapshot` answers queries, with
groups of files that `remembered` has.
"""
