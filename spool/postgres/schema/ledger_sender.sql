-- The name of the Tollhouse key that brought a call. Nodes of the release before leave it empty.
ALTER TABLE {schema}.ledger_keys ADD COLUMN sender text COLLATE "C" NOT NULL DEFAULT '';
