-- The node to which the others hand their commands, for each shard. Not derived from the log, and only for speed: the head of the
-- log decides who writes.
CREATE TABLE shard_leaders (
    shard_id   smallint       NOT NULL PRIMARY KEY,
    node_id    uuid           NOT NULL, -- drawn by the node at its start
    url        text           NOT NULL, -- at which other nodes reach it
    format     text           NOT NULL, -- of the commands that it takes
    expires_at timestamptz(3) NOT NULL
) WITH (fillfactor = 50);

GRANT SELECT, INSERT, UPDATE, DELETE ON shard_leaders TO ledger_runtime;
