-- Events of payouts and wallets for webhooks (docs/webhooks.md). The types of orders stay where nodes of the last release read
-- them; they do not see the further ones.

-- A webhook without further types has no row.
CREATE TABLE webhook_subscriptions (
    shard_id smallint NOT NULL,
    id       bigint   NOT NULL, -- of the webhook
    events   text[]   NOT NULL,
    PRIMARY KEY (shard_id, id)
);
GRANT SELECT, INSERT, UPDATE, DELETE ON webhook_subscriptions TO ledger_runtime;

ALTER TABLE webhook_audience ADD COLUMN further_events text[] NOT NULL DEFAULT '{}';

-- A projector of the last release would pass by events that it does not deliver. It waits for one of this release, which says
-- so in `ledger.webhook_events`. The audience is that of the checkpoint, so a webhook that unsubscribes later still counts.
CREATE FUNCTION refuse_to_pass_further_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.projection = 'deliveries' AND NEW.position > OLD.position AND EXISTS (
        SELECT FROM events e WHERE e.shard_id = NEW.shard_id AND e.position > OLD.position AND e.position <= NEW.position
        AND (e.stream_type = 'webhook' AND e.data -> 'further_events' IS NOT NULL
            OR (e.stream_type = 'payout' OR e.stream_type = 'account' AND e.type = 'LowBalanceReached')
                AND EXISTS (SELECT FROM webhook_audience a WHERE a.shard_id = e.shard_id
                    AND a.account_id = (e.metadata->>'account_id')::bigint AND a.further_events <> '{}')))
    THEN
        RAISE EXCEPTION 'a webhook is subscribed to event types that this node does not know; a node of a later release delivers them'
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN NEW;
END $$;
-- The condition names no column: the contraction of the schema could not change the type of such a column.
CREATE TRIGGER projection_checkpoints_further_events BEFORE UPDATE ON projection_checkpoints FOR EACH ROW
    WHEN (current_setting('ledger.webhook_events', true) IS DISTINCT FROM 'further')
    EXECUTE FUNCTION refuse_to_pass_further_events();

-- Falls of balances that the log is yet to announce. Those of the past are not announced.
ALTER TABLE low_balance_notices ADD COLUMN is_unannounced boolean NOT NULL DEFAULT false;
ALTER TABLE low_balance_notices ALTER COLUMN is_unannounced SET DEFAULT true;
CREATE INDEX low_balance_notices_unannounced ON low_balance_notices (shard_id, position) WHERE is_unannounced;
