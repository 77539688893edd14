"""The calls of the operator API on money: sums, reports, and what is planned and sent of them."""
