-- Webhooks that the service itself switches off, because their deliveries have only failed for a configured time
-- (docs/webhooks.md).

-- Only a webhook that is off now has a row. Rebuilt from the log, as `webhooks` is.
CREATE TABLE webhook_deactivations (
    shard_id       smallint       NOT NULL,
    id             bigint         NOT NULL, -- of the webhook
    reason         jsonb          NOT NULL,
    deactivated_at timestamptz(3) NOT NULL,
    PRIMARY KEY (shard_id, id)
);
GRANT SELECT, INSERT, UPDATE, DELETE ON webhook_deactivations TO ledger_runtime;

-- Time for which nodes have looked at the attempts of a shard's webhooks (src/delivery/failing.rs). Each round adds the time since
-- the round before, two minutes at most, so neither a clock that jumps nor an outage counts.
CREATE TABLE webhook_failure_time (
    shard_id smallint    PRIMARY KEY,
    observed interval    NOT NULL,
    seen_at  timestamptz NOT NULL -- of the latest round
);
GRANT SELECT, INSERT, UPDATE, DELETE ON webhook_failure_time TO ledger_runtime;

-- Webhooks with failed attempts, as src/delivery/failing.rs has seen them in `delivery_days`. Never rebuilt: without a row,
-- the time of a webhook begins again.
CREATE TABLE webhook_failures (
    shard_id     smallint NOT NULL,
    webhook_id   bigint   NOT NULL,
    changed_at   timestamptz(3) NOT NULL, -- time of the webhook's latest change; another one ends its failing
    from_day     date     NOT NULL, -- UTC; the next two count from this day on
    delivered    bigint   NOT NULL, -- attempts that succeeded
    failed       bigint   NOT NULL,
    failing_from interval,          -- observed time; null unless all attempts since the latest change or success have failed
    failed_at    interval NOT NULL, -- observed time at which the latest failed attempts were seen
    PRIMARY KEY (shard_id, webhook_id)
);
GRANT SELECT, INSERT, UPDATE, DELETE ON webhook_failures TO ledger_runtime;
