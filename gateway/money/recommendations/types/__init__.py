"""The types of recommendations, one module each. `gateway.money.recommendations.list` has their order."""
