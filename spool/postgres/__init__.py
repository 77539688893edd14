"""The storage engine for several gateways on one PostgreSQL."""
