CREATE EXTERNAL TABLE lake (
{columns}
)
PARTITIONED BY (`date` string)
STORED AS PARQUET
LOCATION '{place}/'
TBLPROPERTIES (
  'projection.enabled' = 'true', 'projection.date.type' = 'date', 'projection.date.format' = 'yyyy-MM-dd',
  'projection.date.range' = '2020-01-01,NOW+1DAYS', 'storage.location.template' = '{place}/date=${{date}}/'
);
