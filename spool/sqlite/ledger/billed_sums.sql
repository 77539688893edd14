-- Sums of the days of bills (spool/sql/billed.py), which came with the eighth version. `summed`: the day has them.
ALTER TABLE billed_days ADD COLUMN summed INTEGER NOT NULL DEFAULT 0;
CREATE TABLE billed_sums (
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
INSERT INTO billed_sums SELECT start, provider, charge, basis, arranged, SUM(high), SUM(middle), SUM(low)
  FROM billed GROUP BY start, provider, charge, basis, arranged;
UPDATE billed_days SET summed = 1;
