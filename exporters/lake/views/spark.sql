-- Days are those of UTC only where the session is: also for whoever asks the views.
SET TIME ZONE 'UTC';
CREATE TABLE IF NOT EXISTS lake (
{columns},
  `date` DATE
)
USING PARQUET
PARTITIONED BY (`date`)
LOCATION '{place}';
-- Again for each new day.
MSCK REPAIR TABLE lake;
