"""
Handlers of the operator API for billing: hourly files, connections, provider bills, plans and closed months.
"""
