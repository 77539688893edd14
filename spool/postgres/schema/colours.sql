-- The colour of each name in charts. `name` is a keyed digest. The row with an empty name is locked while names are added.
CREATE TABLE {schema}.colours (
    dimension text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    colour    bigint NOT NULL,
    PRIMARY KEY (dimension, name)
);
