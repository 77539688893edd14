-- Quantities beside text tokens, of the sums of hours and days (width in seconds): whole units, and millionths of one, so
-- that no sum of them is beyond 64 bits. Nodes of the release before leave it empty.
CREATE TABLE {schema}.ledger_meters (
    width bigint NOT NULL,
    start bigint NOT NULL,
    key bigint NOT NULL,
    meter text COLLATE "C" NOT NULL,
    whole bigint NOT NULL,
    millionths bigint NOT NULL,
    PRIMARY KEY (width, start, key, meter)
);
