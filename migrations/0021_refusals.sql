-- Nodes that refuse to sign the transparency log, and the memories that a signer waits for after the database has moved to
-- another server (docs/transparency.md, "When the signer refuses").

-- One row for each node and origin. While a row is not withdrawn, nothing is signed under its origin.
CREATE TABLE log_refusals (
    shard_id     smallint       NOT NULL,
    origin       text COLLATE "C" NOT NULL,
    node         uuid           NOT NULL, -- the id beside the node's state file
    host         text           NOT NULL,
    reason       text           NOT NULL,
    head         bigint         NOT NULL, -- where the log ended when the node refused
    size         bigint,                  -- the tree that the node remembers; null: it remembers none
    root         bytea          CHECK (octet_length(root) = 32),
    epoch        bigint,
    refused_at   timestamptz(3) NOT NULL DEFAULT clock_timestamp(),
    withdrawn_at timestamptz(3),          -- the same node found the log to be what it remembers
    PRIMARY KEY (shard_id, origin, node)
);

-- One row for each memory: the server that it was last compared with. A memory that was not compared since the database
-- came up on another server may know of more than that server has.
CREATE TABLE log_signers (
    shard_id    smallint       NOT NULL,
    node        uuid           NOT NULL,
    host        text           NOT NULL,
    server      text           NOT NULL, -- when its postmaster was started, and the database
    compared_at timestamptz(3) NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (shard_id, node)
);

GRANT SELECT, INSERT, UPDATE ON log_refusals TO ledger_runtime;
GRANT SELECT, INSERT, UPDATE, DELETE ON log_signers TO ledger_runtime;

-- Nodes of releases that do not read log_refusals must not sign either.
CREATE FUNCTION refuse_checkpoint() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE refusal log_refusals;
BEGIN
    SELECT * INTO refusal FROM log_refusals
    WHERE shard_id = NEW.shard_id AND origin = NEW.origin AND withdrawn_at IS NULL LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'node % on % refuses to sign this log: %', refusal.node, refusal.host, refusal.reason
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER log_checkpoints_refused BEFORE INSERT ON log_checkpoints FOR EACH ROW EXECUTE FUNCTION refuse_checkpoint();
