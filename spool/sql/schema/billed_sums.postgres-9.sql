-- Sums of the days of bills (spool/sql/billed.py). `summed`: the day has them. A release before leaves it at 0. The first
-- statement makes other writers of days wait until all are summed.
ALTER TABLE {schema}.ledger_billed_days ADD COLUMN summed INTEGER NOT NULL DEFAULT 0;
CREATE TABLE {schema}.ledger_billed_sums (
    start INTEGER NOT NULL,
    provider TEXT NOT NULL,
    charge TEXT NOT NULL,
    basis TEXT NOT NULL,
    arranged INTEGER NOT NULL,
    high INTEGER NOT NULL,
    middle INTEGER NOT NULL,
    low INTEGER NOT NULL,
    PRIMARY KEY (start, provider, charge, basis, arranged)
) STRICT, WITHOUT ROWID;
INSERT INTO {schema}.ledger_billed_sums
SELECT start, provider, charge, basis, arranged, SUM(high), SUM(middle), SUM(low)
  FROM {schema}.ledger_billed GROUP BY start, provider, charge, basis, arranged;
UPDATE {schema}.ledger_billed_days SET summed = 1;
