-- Signed requests, rate limits and blocks.

ALTER TABLE credentials ADD COLUMN hmac_required boolean NOT NULL DEFAULT false;

-- A fixed window per rule and key; opens with the key's first request. Counted by every node, in
-- one statement for all requests that wait there. Logged, but committed asynchronously: a crash of
-- the database forgets less than a second, a crash of a node nothing.
CREATE TABLE rate_windows (
    key       text COLLATE "C" NOT NULL PRIMARY KEY, -- rule and whose: 'orders credential 7', 'login ip 192.0.2.1'
    ceiling   integer          NOT NULL CHECK (ceiling > 0),
    opened_at timestamptz      NOT NULL,
    closes_at timestamptz      NOT NULL,
    used      integer          NOT NULL CHECK (used >= 0),
    granted   integer          NOT NULL CHECK (granted >= 0) -- by the last statement: how many of its requests pass
) WITH (fillfactor = 50);
CREATE INDEX rate_windows_closes_at ON rate_windows (closes_at);

-- IPs that logged in too often. Not derived from the log; lifting one is an event.
CREATE TABLE ip_blocks (
    ip         text COLLATE "C" NOT NULL PRIMARY KEY,
    id         bigint           NOT NULL GENERATED ALWAYS AS IDENTITY,
    started_at timestamptz      NOT NULL,
    ends_at    timestamptz      NOT NULL CHECK (ends_at > started_at)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON rate_windows, ip_blocks TO ledger_runtime;
