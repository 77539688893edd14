-- Create the dataset `tollhouse` first.
CREATE OR REPLACE EXTERNAL TABLE tollhouse.lake (
{columns}
)
WITH PARTITION COLUMNS (`date` DATE)
OPTIONS (
  format = 'PARQUET', uris = ['{place}/*.parquet'], hive_partition_uri_prefix = '{place}'
);
