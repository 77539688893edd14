-- Days are UTC only if the session time zone is UTC, also in sessions that query the views.
SET TIME ZONE 'UTC';
CREATE TABLE IF NOT EXISTS lake (
{columns},
  `date` DATE
)
USING PARQUET
PARTITIONED BY (`date`)
LOCATION '{place}';
-- Run this again for each new day.
MSCK REPAIR TABLE lake;
