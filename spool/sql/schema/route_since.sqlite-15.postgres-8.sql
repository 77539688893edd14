-- Since when a route has stood where it stands; NULL while it runs, and where a release before set the state.
ALTER TABLE {schema}.routes ADD COLUMN state_since REAL;
