-- What belongs to a person is sealed under a key of its own: with the key's row and the value's,
-- it is erased.

CREATE SEQUENCE vault.data_key_ids;

-- A random key for each subject, sealed under the master key. Whatever is sealed under it names it
-- (key_id); what names none was sealed under the master key, before there were data keys.
CREATE TABLE vault.data_keys (
    shard_id   smallint NOT NULL,
    id         bigint   NOT NULL,
    subject    text     NOT NULL CHECK (subject IN ('account', 'beneficiary', 'user', 'voucher')),
    subject_id bigint   NOT NULL,
    sealed     bytea    NOT NULL,
    CONSTRAINT data_keys_pkey PRIMARY KEY (shard_id, id),
    CONSTRAINT data_keys_subject_key UNIQUE (shard_id, subject, subject_id)
);

ALTER TABLE vault.texts ADD COLUMN key_id bigint;
ALTER TABLE vault.vouchers ADD COLUMN key_id bigint;
-- An answer that shows somebody's data is sealed under their key, too; about is the id of what it shows.
ALTER TABLE idempotency_keys ADD COLUMN key_id bigint, ADD COLUMN about bigint;
CREATE INDEX idempotency_keys_key_id ON idempotency_keys (shard_id, key_id, about) WHERE key_id IS NOT NULL;

-- A voucher whose codes are erased: it is some order's, and its reference stays.
ALTER TABLE vault.vouchers ALTER COLUMN sealed DROP NOT NULL, ALTER COLUMN fingerprint DROP NOT NULL;
ALTER TABLE vault.vouchers ADD CONSTRAINT vouchers_erased_check
    CHECK ((sealed IS NULL) = (fingerprint IS NULL) AND (sealed IS NOT NULL OR (order_id IS NOT NULL AND key_id IS NULL))) NOT VALID;

-- Tables that an erasure has touched and that still have to be rewritten, since their files keep
-- what was deleted: the transaction that did it. Written with the erasure.
CREATE TABLE vault.unwiped (
    relation text    NOT NULL PRIMARY KEY,
    xid      xid8    NOT NULL
);

-- Samples of what is sealed have no place in the planner's statistics, where an erasure would not
-- find them. Setting the same type again drops those that there are.
ALTER TABLE vault.texts ALTER COLUMN salt TYPE bytea, ALTER COLUMN sealed TYPE bytea;
ALTER TABLE vault.texts ALTER COLUMN salt SET STATISTICS 0, ALTER COLUMN sealed SET STATISTICS 0;
ALTER TABLE vault.vouchers ALTER COLUMN sealed TYPE bytea, ALTER COLUMN fingerprint TYPE bytea;
ALTER TABLE vault.vouchers ALTER COLUMN sealed SET STATISTICS 0, ALTER COLUMN fingerprint SET STATISTICS 0;
ALTER TABLE vault.data_keys ALTER COLUMN sealed SET STATISTICS 0;
ALTER TABLE vault.users ALTER COLUMN email_lookup TYPE bytea, ALTER COLUMN password_hash TYPE text;
ALTER TABLE vault.users ALTER COLUMN email_lookup SET STATISTICS 0, ALTER COLUMN password_hash SET STATISTICS 0;
ALTER TABLE idempotency_keys ALTER COLUMN body TYPE bytea;
ALTER TABLE idempotency_keys ALTER COLUMN body SET STATISTICS 0;
ALTER TABLE delivery_state ALTER COLUMN response_body TYPE text;
ALTER TABLE delivery_state ALTER COLUMN response_body SET STATISTICS 0;
ALTER TABLE delivery_attempts ALTER COLUMN error TYPE text;
ALTER TABLE delivery_attempts ALTER COLUMN error SET STATISTICS 0;

-- What the writer sends, with the key's id.
CREATE TYPE vault_text_row_2 AS (
    shard_id smallint,
    kind     text,
    id       bigint,
    salt     bytea,
    sealed   bytea,
    key_id   bigint
);

CREATE TYPE idempotency_key_row_2 AS (
    shard_id    smallint,
    key_hash    bytea,
    fingerprint bytea,
    status      smallint,
    body        bytea,
    is_sealed   boolean,
    created_at  timestamptz,
    key_id      bigint,
    about       bigint
);

CREATE TYPE data_key_row AS (
    shard_id   smallint,
    id         bigint,
    subject    text,
    subject_id bigint,
    sealed     bytea
);

GRANT SELECT, INSERT, UPDATE, DELETE ON vault.data_keys, vault.unwiped TO ledger_runtime;
GRANT USAGE ON SEQUENCE vault.data_key_ids TO ledger_runtime;
