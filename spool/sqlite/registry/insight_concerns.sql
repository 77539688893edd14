-- Which calls an insight is about, so that people see those of their own. What was found before is found again, and
-- tells it then.

ALTER TABLE insights ADD COLUMN concerns TEXT NOT NULL DEFAULT '';
