-- Sessions and links end with the account that is behind them. Of links of before it is not known which that was:
-- what an account of the same name made ends with it.

ALTER TABLE sessions ADD COLUMN account TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN address TEXT NOT NULL DEFAULT '';
ALTER TABLE links ADD COLUMN account TEXT NOT NULL DEFAULT '';
UPDATE sessions SET account = actor;
UPDATE links SET account = actor;
