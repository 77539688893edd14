-- The sum of the amounts of a type's events, as decimal text; NULL while none had one.
ALTER TABLE event_types ADD COLUMN amount TEXT;
