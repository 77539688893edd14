"""The calls of the operator API on billing: hours and drops that are sent, and statements of providers."""
