-- The storage integration `tollhouse` must have the right to read the store.
CREATE STAGE IF NOT EXISTS tollhouse_lake URL = 's3://acme-costs/tollhouse/ai_telemetry/v1/' STORAGE_INTEGRATION = tollhouse;
CREATE EXTERNAL TABLE IF NOT EXISTS lake (
  "EDITION" VARCHAR AS (value:edition::VARCHAR),
  "NUMBER" NUMBER(19, 0) AS (value:number::NUMBER(19, 0)),
  "AT" TIMESTAMP_NTZ AS (value:at::TIMESTAMP_NTZ),
  "COMMITTED_AT" TIMESTAMP_NTZ AS (value:committed_at::TIMESTAMP_NTZ),
  "KIND" VARCHAR AS (value:kind::VARCHAR),
  "COUNTED" BOOLEAN AS (value:counted::BOOLEAN),
  "CALLS" NUMBER(19, 0) AS (value:calls::NUMBER(19, 0)),
  "SPEND" NUMBER(38, 27) AS (value:spend::NUMBER(38, 27)),
  "ID" VARCHAR AS (value:id::VARCHAR),
  "REQUEST_ID" VARCHAR AS (value:request_id::VARCHAR),
  "TRACE_ID" VARCHAR AS (value:trace_id::VARCHAR),
  "SPAN_ID" VARCHAR AS (value:span_id::VARCHAR),
  "START_TIME" TIMESTAMP_NTZ AS (value:start_time::TIMESTAMP_NTZ),
  "END_TIME" TIMESTAMP_NTZ AS (value:end_time::TIMESTAMP_NTZ),
  "PROVIDER" VARCHAR AS (value:provider::VARCHAR),
  "OPERATION" VARCHAR AS (value:operation::VARCHAR),
  "REQUEST_MODEL" VARCHAR AS (value:request_model::VARCHAR),
  "RESPONSE_MODEL" VARCHAR AS (value:response_model::VARCHAR),
  "REGION" VARCHAR AS (value:region::VARCHAR),
  "STATUS" VARCHAR AS (value:status::VARCHAR),
  "ERROR_TYPE" VARCHAR AS (value:error_type::VARCHAR),
  "COST_SOURCE" VARCHAR AS (value:cost_source::VARCHAR),
  "PRICE_BOOK" VARCHAR AS (value:price_book::VARCHAR),
  "SOURCE" VARCHAR AS (value:source::VARCHAR),
  "INPUT_TOKENS" NUMBER(19, 0) AS (value:input_tokens::NUMBER(19, 0)),
  "OUTPUT_TOKENS" NUMBER(19, 0) AS (value:output_tokens::NUMBER(19, 0)),
  "CACHE_READ_TOKENS" NUMBER(19, 0) AS (value:cache_read_tokens::NUMBER(19, 0)),
  "CACHE_WRITE_TOKENS" NUMBER(19, 0) AS (value:cache_write_tokens::NUMBER(19, 0)),
  "CACHE_WRITE_1H_TOKENS" NUMBER(19, 0) AS (value:cache_write_1h_tokens::NUMBER(19, 0)),
  "REASONING_TOKENS" NUMBER(19, 0) AS (value:reasoning_tokens::NUMBER(19, 0)),
  "COST" NUMBER(38, 27) AS (value:cost::NUMBER(38, 27)),
  "ESTIMATED_COST" NUMBER(38, 27) AS (value:estimated_cost::NUMBER(38, 27)),
  "USER" VARCHAR AS (value:user::VARCHAR),
  "TEAM" VARCHAR AS (value:team::VARCHAR),
  "SESSION" VARCHAR AS (value:session::VARCHAR),
  "API_KEY" VARCHAR AS (value:api_key::VARCHAR),
  "DEVICE" VARCHAR AS (value:device::VARCHAR),
  "TAGS" VARIANT AS (value:tags::VARIANT),
  "SHADOW" BOOLEAN AS (value:shadow::BOOLEAN),
  "NAME" VARCHAR AS (value:name::VARCHAR),
  "MODEL" VARCHAR AS (value:model::VARCHAR),
  "TOKEN_TYPE" VARCHAR AS (value:token_type::VARCHAR),
  "VALUE" NUMBER(19, 0) AS (value:value::NUMBER(19, 0)),
  "VALUE_MONEY" NUMBER(38, 27) AS (value:value_money::NUMBER(38, 27)),
  "UNIT" VARCHAR AS (value:unit::VARCHAR),
  "METERS" VARIANT AS (value:meters::VARIANT),
  "CORRECTS" VARCHAR AS (value:corrects::VARCHAR),
  "REASON" VARCHAR AS (value:reason::VARCHAR),
  "KNOWN_AT" TIMESTAMP_NTZ AS (value:known_at::TIMESTAMP_NTZ),
  "RUN" VARCHAR AS (value:run::VARCHAR),
  "PARENT_RUN" VARCHAR AS (value:parent_run::VARCHAR),
  "ANCESTORS" VARCHAR AS (value:ancestors::VARCHAR),
  "CHARGES" VARIANT AS (value:charges::VARIANT),
  "COUNTED_BY" VARCHAR AS (value:counted_by::VARCHAR),
  "DATE" DATE AS (CAST(split_part(split_part(metadata$filename, 'date=', 2), '/', 1) AS DATE))
)
PARTITION BY ("DATE")
LOCATION = @tollhouse_lake
PATTERN = '.*[.]parquet'
FILE_FORMAT = (TYPE = PARQUET);
-- Each id once, which matters only after a restore or an import.
CREATE OR REPLACE VIEW once AS
SELECT "EDITION", "NUMBER", "AT", "COMMITTED_AT", "KIND", "COUNTED", "CALLS", "SPEND", "ID", "REQUEST_ID", "TRACE_ID", "SPAN_ID", "START_TIME", "END_TIME", "PROVIDER", "OPERATION", "REQUEST_MODEL", "RESPONSE_MODEL", "REGION", "STATUS", "ERROR_TYPE", "COST_SOURCE", "PRICE_BOOK", "SOURCE", "INPUT_TOKENS", "OUTPUT_TOKENS", "CACHE_READ_TOKENS", "CACHE_WRITE_TOKENS", "CACHE_WRITE_1H_TOKENS", "REASONING_TOKENS", "COST", "ESTIMATED_COST", "USER", "TEAM", "SESSION", "API_KEY", "DEVICE", "TAGS", "SHADOW", "NAME", "MODEL", "TOKEN_TYPE", "VALUE", "VALUE_MONEY", "UNIT", "METERS", "CORRECTS", "REASON", "KNOWN_AT", "RUN", "PARENT_RUN", "ANCESTORS", "CHARGES", "COUNTED_BY", "DATE"
  FROM (
         SELECT "EDITION", "NUMBER", "AT", "COMMITTED_AT", "KIND", "COUNTED", "CALLS", "SPEND", "ID", "REQUEST_ID", "TRACE_ID", "SPAN_ID", "START_TIME", "END_TIME", "PROVIDER", "OPERATION", "REQUEST_MODEL", "RESPONSE_MODEL", "REGION", "STATUS", "ERROR_TYPE", "COST_SOURCE", "PRICE_BOOK", "SOURCE", "INPUT_TOKENS", "OUTPUT_TOKENS", "CACHE_READ_TOKENS", "CACHE_WRITE_TOKENS", "CACHE_WRITE_1H_TOKENS", "REASONING_TOKENS", "COST", "ESTIMATED_COST", "USER", "TEAM", "SESSION", "API_KEY", "DEVICE", "TAGS", "SHADOW", "NAME", "MODEL", "TOKEN_TYPE", "VALUE", "VALUE_MONEY", "UNIT", "METERS", "CORRECTS", "REASON", "KNOWN_AT", "RUN", "PARENT_RUN", "ANCESTORS", "CHARGES", "COUNTED_BY", "DATE", row_number() OVER (
                  PARTITION BY "ID" ORDER BY CASE WHEN "NUMBER" IS NULL THEN 1 ELSE 0 END, "NUMBER", "EDITION"
                ) AS place
           FROM lake
       ) r
 WHERE place = 1;
-- Rows that count: their sums equal the reports.
CREATE OR REPLACE VIEW spend AS
SELECT "EDITION", "NUMBER", "AT", "COMMITTED_AT", "KIND", "COUNTED", "CALLS", "SPEND", "ID", "REQUEST_ID", "TRACE_ID", "SPAN_ID", "START_TIME", "END_TIME", "PROVIDER", "OPERATION", "REQUEST_MODEL", "RESPONSE_MODEL", "REGION", "STATUS", "ERROR_TYPE", "COST_SOURCE", "PRICE_BOOK", "SOURCE", "INPUT_TOKENS", "OUTPUT_TOKENS", "CACHE_READ_TOKENS", "CACHE_WRITE_TOKENS", "CACHE_WRITE_1H_TOKENS", "REASONING_TOKENS", "COST", "ESTIMATED_COST", "USER", "TEAM", "SESSION", "API_KEY", "DEVICE", "TAGS", "SHADOW", "NAME", "MODEL", "TOKEN_TYPE", "VALUE", "VALUE_MONEY", "UNIT", "METERS", "CORRECTS", "REASON", "KNOWN_AT", "RUN", "PARENT_RUN", "ANCESTORS", "CHARGES", "COUNTED_BY", "DATE", CAST("SPEND" AS NUMBER(18, 6)) AS usd FROM lake WHERE "COUNTED";
-- One row per call, with its spend after corrections and the number of corrections. A call that a correction took
-- back has no row, because another row is the same call.
CREATE OR REPLACE VIEW calls AS
SELECT c."EDITION", c."NUMBER", c."AT", c."COMMITTED_AT", c."KIND", c."COUNTED", c."CALLS", CASE WHEN k.corrections IS NULL THEN c."SPEND" ELSE coalesce(c."SPEND", 0) + coalesce(k.changed, 0) END AS "SPEND", c."ID", c."REQUEST_ID", c."TRACE_ID", c."SPAN_ID", c."START_TIME", c."END_TIME", c."PROVIDER", c."OPERATION", c."REQUEST_MODEL", c."RESPONSE_MODEL", c."REGION", c."STATUS", c."ERROR_TYPE", c."COST_SOURCE", c."PRICE_BOOK", c."SOURCE", c."INPUT_TOKENS", c."OUTPUT_TOKENS", c."CACHE_READ_TOKENS", c."CACHE_WRITE_TOKENS", c."CACHE_WRITE_1H_TOKENS", c."REASONING_TOKENS", c."COST", c."ESTIMATED_COST", c."USER", c."TEAM", c."SESSION", c."API_KEY", c."DEVICE", c."TAGS", c."SHADOW", c."NAME", c."MODEL", c."TOKEN_TYPE", c."VALUE", c."VALUE_MONEY", c."UNIT", c."METERS", c."CORRECTS", c."REASON", c."KNOWN_AT", c."RUN", c."PARENT_RUN", c."ANCESTORS", c."CHARGES", c."COUNTED_BY", c."DATE",
       coalesce(k.corrections, 0) AS corrections
  FROM once c
  LEFT JOIN (
         SELECT "CORRECTS" AS corrected, sum("SPEND") AS changed, count(*) AS corrections,
                sum("CALLS") AS changed_calls
           FROM once WHERE "KIND" = 'correction' GROUP BY "CORRECTS"
       ) k ON k.corrected = c."ID"
 WHERE c."KIND" = 'inference' AND coalesce(k.changed_calls, 0) >= 0;
-- Sums by the day of the call in UTC. A correction belongs to the day of the call that it changes.
CREATE OR REPLACE VIEW daily AS
SELECT CAST("AT" AS DATE) AS day, sum("CALLS") AS calls, sum("SPEND") AS spend,
       sum("INPUT_TOKENS") AS input_tokens, sum("OUTPUT_TOKENS") AS output_tokens
  FROM spend GROUP BY CAST("AT" AS DATE);
CREATE OR REPLACE VIEW by_owner AS
SELECT CAST("AT" AS DATE) AS day, "TEAM", "USER", "API_KEY", sum("CALLS") AS calls, sum("SPEND") AS spend
  FROM spend GROUP BY CAST("AT" AS DATE), "TEAM", "USER", "API_KEY";
-- Rows that became known on a later day than the day of the call.
CREATE OR REPLACE VIEW late AS
SELECT "EDITION", "NUMBER", "AT", "COMMITTED_AT", "KIND", "COUNTED", "CALLS", "SPEND", "ID", "REQUEST_ID", "TRACE_ID", "SPAN_ID", "START_TIME", "END_TIME", "PROVIDER", "OPERATION", "REQUEST_MODEL", "RESPONSE_MODEL", "REGION", "STATUS", "ERROR_TYPE", "COST_SOURCE", "PRICE_BOOK", "SOURCE", "INPUT_TOKENS", "OUTPUT_TOKENS", "CACHE_READ_TOKENS", "CACHE_WRITE_TOKENS", "CACHE_WRITE_1H_TOKENS", "REASONING_TOKENS", "COST", "ESTIMATED_COST", "USER", "TEAM", "SESSION", "API_KEY", "DEVICE", "TAGS", "SHADOW", "NAME", "MODEL", "TOKEN_TYPE", "VALUE", "VALUE_MONEY", "UNIT", "METERS", "CORRECTS", "REASON", "KNOWN_AT", "RUN", "PARENT_RUN", "ANCESTORS", "CHARGES", "COUNTED_BY", "DATE", usd, CAST(coalesce("KNOWN_AT", "COMMITTED_AT") AS DATE) AS known_on
  FROM spend WHERE CAST(coalesce("KNOWN_AT", "COMMITTED_AT") AS DATE) > CAST("AT" AS DATE);
-- Sums by hour, with column names of FOCUS.
CREATE OR REPLACE VIEW focus AS
SELECT DATE_TRUNC('HOUR', "AT") AS ChargePeriodStart, 'Usage' AS ChargeCategory, 'AI and Machine Learning' AS ServiceCategory,
       "PROVIDER" AS ServiceProviderName, coalesce("RESPONSE_MODEL", "REQUEST_MODEL", "MODEL") AS ResourceId,
       "REGION" AS RegionId, "TEAM" AS SubAccountId, 'USD' AS BillingCurrency, sum("SPEND") AS BilledCost,
       sum("CALLS") AS x_Calls, sum("INPUT_TOKENS") AS x_InputTokens, sum("OUTPUT_TOKENS") AS x_OutputTokens,
       "COST_SOURCE" AS x_CostSource
  FROM spend
 GROUP BY DATE_TRUNC('HOUR', "AT"), "PROVIDER", coalesce("RESPONSE_MODEL", "REQUEST_MODEL", "MODEL"), "REGION", "TEAM",
          "COST_SOURCE";
