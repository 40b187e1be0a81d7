-- Signs of life of the nodes, and runs of verify and rebuild. Not derived from the log.

-- One row for each start of a node. The node updates it every few seconds.
CREATE TABLE nodes (
    id            uuid           NOT NULL PRIMARY KEY, -- drawn by the node at its start
    host          text           NOT NULL,
    version       text           NOT NULL,
    roles         text[]         NOT NULL,
    stalled_loops text[]         NOT NULL,
    checked       smallint[]     NOT NULL,             -- shards of which it knows that no delivery is missing, or how many are
    started_at    timestamptz(3) NOT NULL DEFAULT clock_timestamp(),
    beat_at       timestamptz(3) NOT NULL DEFAULT clock_timestamp(),
    stopped_at    timestamptz(3)                       -- null: the node runs, or ended without a word
) WITH (fillfactor = 50);

-- Counts of a node in a minute, for plots over all nodes. The current minute's row is updated with each sign of life.
CREATE TABLE node_minutes (
    node_id    uuid           NOT NULL,
    minute     timestamptz(3) NOT NULL,
    requests   bigint         NOT NULL,
    failures   bigint         NOT NULL, -- requests answered with a 5xx status
    slow       bigint         NOT NULL, -- requests that took longer than a second
    events     bigint         NOT NULL,
    batches    bigint         NOT NULL,
    held       bigint         NOT NULL, -- batches that held the log's head longer than half a second
    taken_up   bigint         NOT NULL, -- orders that fulfilment took up
    delivered  bigint         NOT NULL, -- delivery attempts
    failed     bigint         NOT NULL,
    total_ms   bigint         NOT NULL, -- time of all delivery attempts
    longest_ms bigint         NOT NULL,
    CONSTRAINT node_minutes_pkey PRIMARY KEY (minute, node_id)
) WITH (fillfactor = 50);

-- One row for each verification that the console or a command has started, and for each rebuild.
CREATE TABLE audit_runs (
    id          bigint         NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind        text COLLATE "C" NOT NULL CHECK (kind IN ('verify', 'rebuild')),
    projection  text,                    -- of a rebuild
    actor       json,                    -- the operator who started it; null: a command
    host        text           NOT NULL,
    started_at  timestamptz(3) NOT NULL DEFAULT clock_timestamp(),
    beat_at     timestamptz(3) NOT NULL DEFAULT clock_timestamp(),
    ended_at    timestamptz(3),
    stage       text,
    shard_id    smallint,
    done        bigint,
    total       bigint,
    outcome     text COLLATE "C" CHECK (outcome IN ('clean', 'differences', 'failed', 'stopped')),
    found       bigint         NOT NULL DEFAULT 0,
    summary     text,
    differences text[]         NOT NULL DEFAULT '{}',
    CONSTRAINT audit_runs_ended CHECK ((ended_at IS NULL) = (outcome IS NULL))
) WITH (fillfactor = 70);

GRANT SELECT, INSERT, UPDATE, DELETE ON nodes, node_minutes, audit_runs TO ledger_runtime;
