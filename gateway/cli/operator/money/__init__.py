"""Commands about money: sums, reports, and what is planned and sent of them."""
