-- Replays of webhook events, and what retention takes away.

CREATE SEQUENCE replay_ids;

-- An inline projection: how far each replay has come is the fold of its stream.
CREATE TABLE webhook_replays (
    shard_id      smallint       NOT NULL,
    id            bigint         NOT NULL,
    version       bigint         NOT NULL,
    account_id    bigint         NOT NULL,
    webhook_id    bigint         NOT NULL,
    kind          text           NOT NULL CHECK (kind IN ('deliveries', 'missed')),
    events        text[]         NOT NULL,
    per_second    integer        NOT NULL CHECK (per_second > 0),
    status        text           NOT NULL CHECK (status IN ('RUNNING', 'COMPLETED', 'CANCELLED', 'FAILED')),
    from_position bigint         NOT NULL,
    next_position bigint         NOT NULL,
    until_position bigint        NOT NULL,
    deliveries    bigint         NOT NULL CHECK (deliveries >= 0),
    created_at    timestamptz(3) NOT NULL,
    updated_at    timestamptz(3) NOT NULL,
    CONSTRAINT webhook_replays_pkey PRIMARY KEY (shard_id, id)
);
CREATE INDEX webhook_replays_webhook ON webhook_replays (shard_id, webhook_id, id);
CREATE INDEX webhook_replays_running ON webhook_replays (shard_id, id) WHERE status = 'RUNNING';

CREATE INDEX deliveries_replay ON deliveries (shard_id, replay_id) WHERE replay_id > 0;

-- Null once its time is over; it is the log's fold, and made again when it is needed.
ALTER TABLE webhook_envelopes ALTER COLUMN payload DROP NOT NULL;

-- Who has answered with bodies that are kept, and the newest of them.
CREATE INDEX delivery_state_bodies ON delivery_state (shard_id, webhook_id, delivery_id) WHERE response_body IS NOT NULL;

GRANT SELECT, INSERT, UPDATE, DELETE ON webhook_replays TO ledger_runtime;
GRANT USAGE ON SEQUENCE replay_ids TO ledger_runtime;
