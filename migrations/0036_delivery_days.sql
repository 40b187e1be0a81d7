-- Attempts of a webhook on a day (UTC), for plots: counted by the worker with their results. Not derived from the log. Only
-- nodes that know the table count.
CREATE TABLE delivery_days (
    shard_id   smallint NOT NULL,
    webhook_id bigint   NOT NULL,
    day        date     NOT NULL,
    attempts   bigint   NOT NULL,
    delivered  bigint   NOT NULL, -- of the attempts
    total_ms   bigint   NOT NULL, -- time of all attempts
    longest_ms integer  NOT NULL,
    CONSTRAINT delivery_days_pkey PRIMARY KEY (shard_id, webhook_id, day),
    CONSTRAINT delivery_days_check CHECK (delivered BETWEEN 0 AND attempts)
) WITH (fillfactor = 50);
CREATE INDEX delivery_days_day ON delivery_days (day);
GRANT SELECT, INSERT, UPDATE, DELETE ON delivery_days TO ledger_runtime;
