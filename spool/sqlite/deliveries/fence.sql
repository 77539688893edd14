-- How often a delivery was taken to be sent: only the last taker may say what became of it.
ALTER TABLE deliveries ADD COLUMN fence INTEGER NOT NULL DEFAULT 0;
