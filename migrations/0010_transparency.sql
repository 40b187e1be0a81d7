-- The transparency log: a Merkle tree over each shard's events, as C2SP tlog-tiles has it
-- (docs/transparency.md). How far it has come is a row of projection_checkpoints.

-- Full tiles: 256 hashes. Written once.
CREATE TABLE log_tiles (
    shard_id smallint NOT NULL,
    level    smallint NOT NULL CHECK (level BETWEEN 0 AND 7),
    index    bigint   NOT NULL CHECK (index >= 0),
    hashes   bytea    NOT NULL CHECK (octet_length(hashes) = 8192),
    PRIMARY KEY (shard_id, level, index)
);
-- Hashes cannot be compressed.
ALTER TABLE log_tiles ALTER COLUMN hashes SET STORAGE EXTERNAL;

-- The right edge: what each level has of its tile that is not full yet. The one table of the tree
-- whose rows change; every step begins by comparing it with the checkpoint that was signed of it.
CREATE TABLE log_edges (
    shard_id smallint NOT NULL,
    level    smallint NOT NULL CHECK (level BETWEEN 0 AND 7),
    index    bigint   NOT NULL CHECK (index >= 0),
    hashes   bytea    NOT NULL CHECK (octet_length(hashes) < 8192 AND octet_length(hashes) % 32 = 0),
    PRIMARY KEY (shard_id, level)
) WITH (fillfactor = 50);
ALTER TABLE log_edges ALTER COLUMN hashes SET STORAGE EXTERNAL;

-- Every checkpoint that was signed.
CREATE TABLE log_checkpoints (
    shard_id  smallint       NOT NULL,
    size      bigint         NOT NULL CHECK (size >= 0),
    origin    text           NOT NULL,
    root      bytea          NOT NULL CHECK (octet_length(root) = 32),
    note      text           NOT NULL, -- C2SP tlog-checkpoint, with the log's own signatures
    signed_at timestamptz(3) NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (shard_id, size, origin)
);

-- The public key of every key that has signed, so that an old checkpoint can be verified.
CREATE TABLE log_keys (
    shard_id     smallint       NOT NULL,
    verifier_key text           NOT NULL, -- <origin>+<id>+<base64>
    since_size   bigint         NOT NULL, -- the first tree that it signed
    since        timestamptz(3) NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (shard_id, verifier_key)
);

-- What witnesses have said of checkpoints: of each its newest word.
CREATE TABLE log_cosignatures (
    shard_id    smallint       NOT NULL,
    size        bigint         NOT NULL,
    origin      text           NOT NULL,
    witness     text           NOT NULL, -- its verifier key
    signature   text           NOT NULL, -- the line of the note
    cosigned_at timestamptz(0) NOT NULL, -- what the signature says
    PRIMARY KEY (shard_id, size, origin, witness),
    FOREIGN KEY (shard_id, size, origin) REFERENCES log_checkpoints
);

-- As the log itself: nobody changes what was published.
DO $$
DECLARE published text;
BEGIN
    FOREACH published IN ARRAY ARRAY['log_tiles', 'log_checkpoints', 'log_keys'] LOOP
        EXECUTE format('CREATE TRIGGER %I BEFORE UPDATE OR DELETE ON %I FOR EACH ROW EXECUTE FUNCTION refuse_change()',
            published || '_append_only', published);
        EXECUTE format('CREATE TRIGGER %I BEFORE TRUNCATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()',
            published || '_no_truncate', published);
        EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER %I', published, published || '_append_only');
        EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER %I', published, published || '_no_truncate');
    END LOOP;
END $$;

GRANT SELECT, INSERT ON log_tiles, log_checkpoints, log_keys TO ledger_runtime;
GRANT SELECT, INSERT, UPDATE ON log_edges, log_cosignatures TO ledger_runtime;
