"""
The narrow waist: every door, HTTP, gRPC, file or agent, ends in one call of `Intake.take`.

Only the intake attributes, prices, appends, counts and writes the receipt. It knows no protocol.
"""
