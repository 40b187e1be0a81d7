-- Shards, as the first shard's log records them: an inline projection. A new shard needs no other row than its head: each task of
-- a node creates its checkpoint when it first works on a shard.
CREATE TABLE shards (
    shard_id smallint       NOT NULL, -- of the log that records it
    id       smallint       NOT NULL, -- number of the shard
    version  bigint         NOT NULL,
    draining boolean        NOT NULL, -- it gets no new accounts
    added_at timestamptz(3),          -- null for the first shard, which has a row only once it was drained
    CONSTRAINT shards_pkey PRIMARY KEY (shard_id, id)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON shards TO ledger_runtime;
-- The service adds heads, with the event in the same transaction. It sets no other column, so a new head begins empty.
GRANT INSERT (shard_id) ON log_head TO ledger_runtime;
