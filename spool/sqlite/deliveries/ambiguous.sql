-- Deliveries that may have been taken: `ambiguous` in place of `doubted`, which is written no more.
ALTER TABLE deliveries ADD COLUMN ambiguous INTEGER NOT NULL DEFAULT 0;
ALTER TABLE deliveries ADD COLUMN sending INTEGER NOT NULL DEFAULT 0;      -- in hand of a worker
ALTER TABLE deliveries ADD COLUMN answer TEXT;                             -- the last one under the present key,
ALTER TABLE deliveries ADD COLUMN same_answers INTEGER NOT NULL DEFAULT 0; -- and how often it came in a row
ALTER TABLE routes ADD COLUMN ambiguous INTEGER NOT NULL DEFAULT 0;        -- records, so far
-- Whether a delivery was in hand was not kept before: a single attempt may have been under way.
UPDATE deliveries SET ambiguous = max(doubted, state = 'open' AND mark IS NULL);
