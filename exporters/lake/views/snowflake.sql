-- The storage integration `tollhouse` must have the right to read the store.
CREATE STAGE IF NOT EXISTS tollhouse_lake URL = '{place}/' STORAGE_INTEGRATION = tollhouse;
CREATE EXTERNAL TABLE IF NOT EXISTS lake (
{columns},
  "DATE" DATE AS (CAST(split_part(split_part(metadata$filename, 'date=', 2), '/', 1) AS DATE))
)
PARTITION BY ("DATE")
LOCATION = @tollhouse_lake
PATTERN = '.*[.]parquet'
FILE_FORMAT = (TYPE = PARQUET);
