"""OpAMP: collectors and supervisors that report their state as devices."""
