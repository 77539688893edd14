-- Create the dataset `tollhouse` first.
CREATE OR REPLACE EXTERNAL TABLE tollhouse.lake (
  `edition` STRING,
  `number` INT64,
  `at` TIMESTAMP,
  `committed_at` TIMESTAMP,
  `kind` STRING,
  `counted` BOOL,
  `calls` INT64,
  `spend` BIGNUMERIC(38, 27),
  `id` STRING,
  `request_id` STRING,
  `trace_id` STRING,
  `span_id` STRING,
  `start_time` TIMESTAMP,
  `end_time` TIMESTAMP,
  `provider` STRING,
  `operation` STRING,
  `request_model` STRING,
  `response_model` STRING,
  `region` STRING,
  `status` STRING,
  `error_type` STRING,
  `cost_source` STRING,
  `price_book` STRING,
  `source` STRING,
  `input_tokens` INT64,
  `output_tokens` INT64,
  `cache_read_tokens` INT64,
  `cache_write_tokens` INT64,
  `cache_write_1h_tokens` INT64,
  `reasoning_tokens` INT64,
  `cost` BIGNUMERIC(38, 27),
  `estimated_cost` BIGNUMERIC(38, 27),
  `user` STRING,
  `team` STRING,
  `session` STRING,
  `api_key` STRING,
  `device` STRING,
  `tags` STRUCT<key_value ARRAY<STRUCT<key STRING, value STRING>>>,
  `shadow` BOOL,
  `name` STRING,
  `model` STRING,
  `token_type` STRING,
  `value` INT64,
  `value_money` BIGNUMERIC(38, 27),
  `unit` STRING,
  `meters` STRUCT<key_value ARRAY<STRUCT<key STRING, value NUMERIC(35, 6)>>>,
  `corrects` STRING,
  `reason` STRING,
  `known_at` TIMESTAMP,
  `run` STRING,
  `parent_run` STRING,
  `ancestors` STRING,
  `charges` STRUCT<key_value ARRAY<STRUCT<key STRING, value STRING>>>,
  `counted_by` STRING
)
WITH PARTITION COLUMNS (`date` DATE)
OPTIONS (
  format = 'PARQUET', uris = ['gs://acme-costs/tollhouse/ai_telemetry/v1/*.parquet'], hive_partition_uri_prefix = 'gs://acme-costs/tollhouse/ai_telemetry/v1'
);
-- Each id once, which matters only after a restore or an import.
CREATE OR REPLACE VIEW tollhouse.once AS
SELECT `edition`, `number`, `at`, `committed_at`, `kind`, `counted`, `calls`, `spend`, `id`, `request_id`, `trace_id`, `span_id`, `start_time`, `end_time`, `provider`, `operation`, `request_model`, `response_model`, `region`, `status`, `error_type`, `cost_source`, `price_book`, `source`, `input_tokens`, `output_tokens`, `cache_read_tokens`, `cache_write_tokens`, `cache_write_1h_tokens`, `reasoning_tokens`, `cost`, `estimated_cost`, `user`, `team`, `session`, `api_key`, `device`, `tags`, `shadow`, `name`, `model`, `token_type`, `value`, `value_money`, `unit`, `meters`, `corrects`, `reason`, `known_at`, `run`, `parent_run`, `ancestors`, `charges`, `counted_by`, `date`
  FROM (
         SELECT `edition`, `number`, `at`, `committed_at`, `kind`, `counted`, `calls`, `spend`, `id`, `request_id`, `trace_id`, `span_id`, `start_time`, `end_time`, `provider`, `operation`, `request_model`, `response_model`, `region`, `status`, `error_type`, `cost_source`, `price_book`, `source`, `input_tokens`, `output_tokens`, `cache_read_tokens`, `cache_write_tokens`, `cache_write_1h_tokens`, `reasoning_tokens`, `cost`, `estimated_cost`, `user`, `team`, `session`, `api_key`, `device`, `tags`, `shadow`, `name`, `model`, `token_type`, `value`, `value_money`, `unit`, `meters`, `corrects`, `reason`, `known_at`, `run`, `parent_run`, `ancestors`, `charges`, `counted_by`, `date`, row_number() OVER (
                  PARTITION BY `id` ORDER BY CASE WHEN `number` IS NULL THEN 1 ELSE 0 END, `number`, `edition`
                ) AS place
           FROM tollhouse.lake
       ) r
 WHERE place = 1;
-- Rows that count: their sums equal the reports.
CREATE OR REPLACE VIEW tollhouse.spend AS
SELECT `edition`, `number`, `at`, `committed_at`, `kind`, `counted`, `calls`, `spend`, `id`, `request_id`, `trace_id`, `span_id`, `start_time`, `end_time`, `provider`, `operation`, `request_model`, `response_model`, `region`, `status`, `error_type`, `cost_source`, `price_book`, `source`, `input_tokens`, `output_tokens`, `cache_read_tokens`, `cache_write_tokens`, `cache_write_1h_tokens`, `reasoning_tokens`, `cost`, `estimated_cost`, `user`, `team`, `session`, `api_key`, `device`, `tags`, `shadow`, `name`, `model`, `token_type`, `value`, `value_money`, `unit`, `meters`, `corrects`, `reason`, `known_at`, `run`, `parent_run`, `ancestors`, `charges`, `counted_by`, `date`, CAST(`spend` AS NUMERIC(18, 6)) AS usd FROM tollhouse.lake WHERE `counted`;
-- One row per call, with its spend after corrections and the number of corrections. A call that a correction took
-- back has no row, because another row is the same call.
CREATE OR REPLACE VIEW tollhouse.calls AS
SELECT c.`edition`, c.`number`, c.`at`, c.`committed_at`, c.`kind`, c.`counted`, c.`calls`, CASE WHEN k.corrections IS NULL THEN c.`spend` ELSE coalesce(c.`spend`, 0) + coalesce(k.changed, 0) END AS `spend`, c.`id`, c.`request_id`, c.`trace_id`, c.`span_id`, c.`start_time`, c.`end_time`, c.`provider`, c.`operation`, c.`request_model`, c.`response_model`, c.`region`, c.`status`, c.`error_type`, c.`cost_source`, c.`price_book`, c.`source`, c.`input_tokens`, c.`output_tokens`, c.`cache_read_tokens`, c.`cache_write_tokens`, c.`cache_write_1h_tokens`, c.`reasoning_tokens`, c.`cost`, c.`estimated_cost`, c.`user`, c.`team`, c.`session`, c.`api_key`, c.`device`, c.`tags`, c.`shadow`, c.`name`, c.`model`, c.`token_type`, c.`value`, c.`value_money`, c.`unit`, c.`meters`, c.`corrects`, c.`reason`, c.`known_at`, c.`run`, c.`parent_run`, c.`ancestors`, c.`charges`, c.`counted_by`, c.`date`,
       coalesce(k.corrections, 0) AS corrections
  FROM tollhouse.once c
  LEFT JOIN (
         SELECT `corrects` AS corrected, sum(`spend`) AS changed, count(*) AS corrections,
                sum(`calls`) AS changed_calls
           FROM tollhouse.once WHERE `kind` = 'correction' GROUP BY `corrects`
       ) k ON k.corrected = c.`id`
 WHERE c.`kind` = 'inference' AND coalesce(k.changed_calls, 0) >= 0;
-- Sums by the day of the call in UTC. A correction belongs to the day of the call that it changes.
CREATE OR REPLACE VIEW tollhouse.daily AS
SELECT DATE(`at`, 'UTC') AS day, sum(`calls`) AS calls, sum(`spend`) AS spend,
       sum(`input_tokens`) AS input_tokens, sum(`output_tokens`) AS output_tokens
  FROM tollhouse.spend GROUP BY DATE(`at`, 'UTC');
CREATE OR REPLACE VIEW tollhouse.by_owner AS
SELECT DATE(`at`, 'UTC') AS day, `team`, `user`, `api_key`, sum(`calls`) AS calls, sum(`spend`) AS spend
  FROM tollhouse.spend GROUP BY DATE(`at`, 'UTC'), `team`, `user`, `api_key`;
-- Rows that became known on a later day than the day of the call.
CREATE OR REPLACE VIEW tollhouse.late AS
SELECT `edition`, `number`, `at`, `committed_at`, `kind`, `counted`, `calls`, `spend`, `id`, `request_id`, `trace_id`, `span_id`, `start_time`, `end_time`, `provider`, `operation`, `request_model`, `response_model`, `region`, `status`, `error_type`, `cost_source`, `price_book`, `source`, `input_tokens`, `output_tokens`, `cache_read_tokens`, `cache_write_tokens`, `cache_write_1h_tokens`, `reasoning_tokens`, `cost`, `estimated_cost`, `user`, `team`, `session`, `api_key`, `device`, `tags`, `shadow`, `name`, `model`, `token_type`, `value`, `value_money`, `unit`, `meters`, `corrects`, `reason`, `known_at`, `run`, `parent_run`, `ancestors`, `charges`, `counted_by`, `date`, usd, DATE(coalesce(`known_at`, `committed_at`), 'UTC') AS known_on
  FROM tollhouse.spend WHERE DATE(coalesce(`known_at`, `committed_at`), 'UTC') > DATE(`at`, 'UTC');
-- Sums by hour, with column names of FOCUS.
CREATE OR REPLACE VIEW tollhouse.focus AS
SELECT TIMESTAMP_TRUNC(`at`, HOUR, 'UTC') AS ChargePeriodStart, 'Usage' AS ChargeCategory, 'AI and Machine Learning' AS ServiceCategory,
       `provider` AS ServiceProviderName, coalesce(`response_model`, `request_model`, `model`) AS ResourceId,
       `region` AS RegionId, `team` AS SubAccountId, 'USD' AS BillingCurrency, sum(`spend`) AS BilledCost,
       sum(`calls`) AS x_Calls, sum(`input_tokens`) AS x_InputTokens, sum(`output_tokens`) AS x_OutputTokens,
       `cost_source` AS x_CostSource
  FROM tollhouse.spend
 GROUP BY TIMESTAMP_TRUNC(`at`, HOUR, 'UTC'), `provider`, coalesce(`response_model`, `request_model`, `model`), `region`, `team`,
          `cost_source`;
