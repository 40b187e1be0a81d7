-- A refusal to sign holds under every origin, until the node withdraws it or an incident ends it (docs/transparency.md, "When
-- the signer refuses").

-- The last release signed on under another origin. Such a log is not stopped again.
UPDATE log_refusals r SET withdrawn_at = clock_timestamp()
WHERE withdrawn_at IS NULL
  AND (SELECT c.origin FROM log_checkpoints c WHERE c.shard_id = r.shard_id ORDER BY c.size DESC LIMIT 1) <> r.origin;

CREATE OR REPLACE FUNCTION refuse_checkpoint() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE refusal log_refusals;
BEGIN
    SELECT * INTO refusal FROM log_refusals r
    WHERE r.shard_id = NEW.shard_id AND r.withdrawn_at IS NULL
      AND NOT EXISTS (SELECT FROM events e WHERE e.shard_id = r.shard_id AND e.stream_type = 'log' AND e.stream_id = r.shard_id
            AND e.type = 'LogIncidentRecorded' AND (e.position > r.head OR e.data ->> 'origin' = r.origin))
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'node % on % refuses to sign this log: %', refusal.node, refusal.host, refusal.reason
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN NEW;
END $$;
