-- Usage events that nothing maps for the destination. Those of before this column are counted as `shadow`.
ALTER TABLE routes ADD COLUMN unmapped INTEGER NOT NULL DEFAULT 0;
