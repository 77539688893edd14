-- Accepted hourly files, their rows by hour (compressed JSON), and the size of each month of a connection.
CREATE TABLE {schema}.billing_drops (
    number     bigint PRIMARY KEY, -- number in the log: the order in which the files arrived
    id         text COLLATE "C" NOT NULL,
    connection text COLLATE "C" NOT NULL,
    month      text COLLATE "C" NOT NULL,
    operation  text COLLATE "C" NOT NULL,
    rows       bigint NOT NULL,
    at         float8 NOT NULL
);
CREATE INDEX billing_drops_by_month ON {schema}.billing_drops (connection, month, id);

CREATE TABLE {schema}.billing_rows (
    connection text COLLATE "C" NOT NULL,
    month      text COLLATE "C" NOT NULL,
    hour       bigint NOT NULL,
    number     bigint NOT NULL,
    rows       bigint NOT NULL,
    bytes      bigint NOT NULL,
    stored     bigint NOT NULL,
    body       bytea NOT NULL,
    PRIMARY KEY (connection, month, hour, number)
);
ALTER TABLE {schema}.billing_rows ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE {schema}.billing_months (
    connection text COLLATE "C" NOT NULL,
    month      text COLLATE "C" NOT NULL,
    rows       bigint NOT NULL,
    bytes      bigint NOT NULL,
    stored     bigint NOT NULL,
    newest     float8 NOT NULL,
    PRIMARY KEY (connection, month)
);

-- Hours of AI cost as last sent to a billing connection. An hour has changed if its hash differs.
CREATE TABLE {schema}.billing_hours (
    connection text COLLATE "C" NOT NULL,
    start      bigint NOT NULL,
    hash       bytea NOT NULL,
    rows       bigint NOT NULL,
    bytes      bigint NOT NULL,
    sent_at    float8 NOT NULL,
    PRIMARY KEY (connection, start)
);
