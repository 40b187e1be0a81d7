-- Restrictions of API keys. A key without a row is unrestricted.
CREATE TABLE credential_restrictions (
    shard_id         smallint       NOT NULL,
    id               bigint         PRIMARY KEY, -- of the credential
    scopes           text[]         CHECK (cardinality(scopes) > 0), -- null: every scope
    expires_at       timestamptz(3),
    allowed_networks cidr[]         CHECK (cardinality(allowed_networks) > 0) -- null: any network
);
GRANT SELECT, INSERT ON credential_restrictions TO ledger_runtime;

-- Last use of each API key, to the minute. No projection: the gate writes it, and the log knows nothing of it.
CREATE TABLE credential_uses (
    credential_id bigint         PRIMARY KEY,
    last_used_at  timestamptz(3) NOT NULL
);
GRANT SELECT, INSERT, UPDATE ON credential_uses TO ledger_runtime;

-- Wallets whose account wants to know when the balance falls below an amount.
CREATE TABLE low_balance_watches (
    shard_id   smallint       NOT NULL,
    wallet_id  bigint         NOT NULL,
    account_id bigint         NOT NULL,
    currency   text           NOT NULL,
    below      numeric(18, 2),          -- null: no notices any more
    is_below   boolean        NOT NULL,
    PRIMARY KEY (shard_id, wallet_id)
);

-- One row for each fall of a balance below its amount.
CREATE TABLE low_balance_notices (
    shard_id   smallint       NOT NULL,
    position   bigint         NOT NULL, -- of the movement
    wallet_id  bigint         NOT NULL,
    account_id bigint         NOT NULL,
    currency   text           NOT NULL,
    below      numeric(18, 2) NOT NULL,
    balance    numeric(18, 2) NOT NULL,
    fell_at    timestamptz(3) NOT NULL,
    due        timestamptz(3),          -- null: handed over to be sent
    PRIMARY KEY (shard_id, position)
);
CREATE INDEX low_balance_notices_due ON low_balance_notices (shard_id, position) WHERE due IS NOT NULL;

GRANT SELECT, INSERT, UPDATE, DELETE ON low_balance_watches, low_balance_notices TO ledger_runtime;
