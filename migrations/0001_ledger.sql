-- The ledger's schema. Forward only; expand, then contract.
--
-- Every table that grows with orders has shard_id first in its primary key, so that the same
-- schema can be distributed by it. What is derived from the log says so.

-- The role that the service works under: it may add to the log and read it, no more.
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'ledger_runtime') THEN
        CREATE ROLE ledger_runtime NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; -- another migration was quicker
END $$;
GRANT ledger_runtime TO CURRENT_USER;

-- ---------------------------------------------------------------------------------- the log

-- One row a shard: locked first and advanced last by every writing transaction, which is what
-- makes positions gapless and in commit order.
CREATE TABLE log_head (
    shard_id    smallint       PRIMARY KEY,
    position    bigint         NOT NULL DEFAULT 0 CHECK (position >= 0),
    recorded_at timestamptz(3) NOT NULL DEFAULT 'epoch',
    epoch       bigint         NOT NULL DEFAULT 0 -- grows when tables are replaced: what writers remember is void then
) WITH (fillfactor = 10);
INSERT INTO log_head (shard_id) VALUES (1);

-- data and metadata are json, not jsonb: the bytes that were decided are the bytes that are kept.
CREATE TABLE events (
    shard_id       smallint       NOT NULL, -- no foreign key: it would cost a look-up per event, and the writer holds the head
    position       bigint         NOT NULL CHECK (position > 0),
    event_id       uuid           NOT NULL,
    stream_type    text           NOT NULL,
    stream_id      bigint         NOT NULL,
    version        bigint         NOT NULL CHECK (version > 0),
    type           text           NOT NULL,
    schema_version smallint       NOT NULL CHECK (schema_version > 0),
    data           json           NOT NULL,
    metadata       json           NOT NULL,
    recorded_at    timestamptz(3) NOT NULL,
    CONSTRAINT events_pkey PRIMARY KEY (shard_id, position),
    CONSTRAINT events_stream_version_key UNIQUE (shard_id, stream_type, stream_id, version),
    CONSTRAINT events_event_id_key UNIQUE (shard_id, event_id)
);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the log is append-only: % on % is refused', TG_OP, TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE ON events FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON events FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
-- ALWAYS: also where session_replication_role is set.
ALTER TABLE events ENABLE ALWAYS TRIGGER events_append_only;
ALTER TABLE events ENABLE ALWAYS TRIGGER events_no_truncate;

-- What a POST with an Idempotency-Key answered; kept 24 hours, written with its events.
CREATE TABLE idempotency_keys (
    shard_id    smallint       NOT NULL,
    key_hash    bytea          NOT NULL, -- SHA-256 of account, method, path and key
    fingerprint bytea          NOT NULL, -- SHA-256 of the parsed request
    status      smallint       NOT NULL,
    body        bytea          NOT NULL, -- sealed where is_sealed
    is_sealed   boolean        NOT NULL,
    created_at  timestamptz(3) NOT NULL,
    PRIMARY KEY (shard_id, key_hash)
);
CREATE INDEX idempotency_keys_age ON idempotency_keys USING brin (created_at);

-- ----------------------------------------------------------- inline projections (of the log)

CREATE SEQUENCE account_ids;
CREATE SEQUENCE credential_ids;
CREATE SEQUENCE category_ids;
CREATE SEQUENCE product_ids;
CREATE SEQUENCE wallet_ids;
CREATE SEQUENCE transaction_ids;
CREATE SEQUENCE order_ids;
CREATE SEQUENCE webhook_ids;
CREATE SEQUENCE delivery_ids;
CREATE SEQUENCE voucher_ids;

CREATE TABLE accounts (
    shard_id   smallint       NOT NULL,
    id         bigint         NOT NULL,
    version    bigint         NOT NULL,
    name       text           NOT NULL,
    status     text           NOT NULL CHECK (status IN ('ACTIVE', 'SUSPENDED')),
    discounts  json           NOT NULL, -- [{product_id, category_id, discount}]
    created_at timestamptz(3) NOT NULL,
    updated_at timestamptz(3) NOT NULL,
    CONSTRAINT accounts_pkey PRIMARY KEY (id)
);

CREATE TABLE credentials (
    shard_id           smallint       NOT NULL,
    id                 bigint         NOT NULL,
    version            bigint         NOT NULL,
    account_id         bigint         NOT NULL,
    name               text           NOT NULL,
    key_prefix         text           NOT NULL, -- the key's first 8 characters: what may be shown
    has_signing_secret boolean        NOT NULL,
    is_revoked         boolean        NOT NULL,
    created_at         timestamptz(3) NOT NULL,
    updated_at         timestamptz(3) NOT NULL,
    CONSTRAINT credentials_pkey PRIMARY KEY (id)
);
CREATE UNIQUE INDEX credentials_key_prefix_key ON credentials (key_prefix);
CREATE INDEX credentials_account ON credentials (account_id, id);

CREATE TABLE categories (
    shard_id   smallint       NOT NULL,
    id         bigint         NOT NULL,
    version    bigint         NOT NULL,
    name       text           NOT NULL,
    parent_id  bigint,
    created_at timestamptz(3) NOT NULL,
    CONSTRAINT categories_pkey PRIMARY KEY (id)
);

CREATE TABLE products (
    shard_id   smallint       NOT NULL,
    id         bigint         NOT NULL,
    version    bigint         NOT NULL,
    name       text           NOT NULL,
    category_id bigint,
    country    text           NOT NULL,
    currency   text           NOT NULL,
    is_active  boolean        NOT NULL,
    details    json           NOT NULL, -- all of ProductDetails
    created_at timestamptz(3) NOT NULL,
    updated_at timestamptz(3) NOT NULL,
    CONSTRAINT products_pkey PRIMARY KEY (id)
);

CREATE TABLE wallets (
    shard_id   smallint       NOT NULL,
    id         bigint         NOT NULL,
    version    bigint         NOT NULL,
    account_id bigint         NOT NULL,
    currency   text           NOT NULL,
    balance    numeric(18, 2) NOT NULL CONSTRAINT wallets_balance_not_negative CHECK (balance >= 0),
    created_at timestamptz(3) NOT NULL,
    updated_at timestamptz(3) NOT NULL,
    CONSTRAINT wallets_pkey PRIMARY KEY (shard_id, id)
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX wallets_account_currency_key ON wallets (shard_id, account_id, currency);

CREATE TABLE wallet_transactions (
    shard_id      smallint       NOT NULL,
    id            bigint         NOT NULL,
    position      bigint         NOT NULL, -- of the wallet event
    wallet_id     bigint         NOT NULL,
    account_id    bigint         NOT NULL,
    type          text           NOT NULL CHECK (type IN ('CREDIT', 'DEBIT')),
    category      text           NOT NULL,
    amount        numeric(18, 2) NOT NULL CHECK (amount >= 0),
    balance_after numeric(18, 2) NOT NULL CHECK (balance_after >= 0),
    currency      text           NOT NULL,
    order_id      bigint,
    reference     text,
    created_at    timestamptz(3) NOT NULL,
    CONSTRAINT wallet_transactions_pkey PRIMARY KEY (shard_id, id)
);
CREATE INDEX wallet_transactions_account ON wallet_transactions (shard_id, account_id, position);
CREATE UNIQUE INDEX wallet_transactions_funding_reference_key ON wallet_transactions (shard_id, reference) WHERE category = 'FUNDING';

CREATE TABLE orders (
    shard_id           smallint       NOT NULL,
    id                 bigint         NOT NULL,
    version            bigint         NOT NULL,
    placed_position    bigint         NOT NULL,
    placed_event_id    uuid           NOT NULL,
    last_event_id      uuid           NOT NULL,
    account_id         bigint         NOT NULL,
    reference_code     text           NOT NULL,
    client_reference   text,
    product_id         bigint         NOT NULL,
    product_name       text           NOT NULL,
    currency           text           NOT NULL,
    denomination       numeric(18, 2) NOT NULL CHECK (denomination > 0),
    quantity           integer        NOT NULL CHECK (quantity > 0),
    face_value         numeric(18, 2) NOT NULL,
    discount           numeric(4, 2)  NOT NULL CHECK (discount >= 0),
    discount_amount    numeric(18, 2) NOT NULL,
    amount             numeric(18, 2) NOT NULL CHECK (amount >= 0 AND amount + discount_amount = face_value),
    wallet_id          bigint         NOT NULL,
    transaction_id     bigint         NOT NULL,
    metadata_hash      text,
    status             text           NOT NULL CHECK (status IN ('PENDING', 'DELAYED', 'PARTIALLY_DELIVERED', 'DELIVERED', 'CANCELLED')),
    sub_status         text           NOT NULL,
    is_queued          boolean        NOT NULL,
    delivered_quantity integer        NOT NULL,
    items              json           NOT NULL, -- [{delivered_on, vouchers: [reference]}]
    delivered_on       timestamptz(3),
    cancelled_on       timestamptz(3),
    refunded_amount    numeric(18, 2) NOT NULL,
    created_at         timestamptz(3) NOT NULL,
    updated_at         timestamptz(3) NOT NULL,
    CONSTRAINT orders_pkey PRIMARY KEY (shard_id, id),
    CONSTRAINT orders_delivered_check CHECK ((status = 'DELIVERED') = (delivered_on IS NOT NULL)),
    CONSTRAINT orders_cancelled_check CHECK ((status = 'CANCELLED') = (cancelled_on IS NOT NULL)),
    CONSTRAINT orders_units_check CHECK (delivered_quantity BETWEEN 0 AND quantity AND (status = 'DELIVERED') = (delivered_quantity = quantity)),
    CONSTRAINT orders_refund_check CHECK (refunded_amount BETWEEN 0 AND amount AND (refunded_amount = 0 OR status = 'CANCELLED'))
) WITH (fillfactor = 70);
CREATE INDEX orders_account ON orders (shard_id, account_id, placed_position);
CREATE UNIQUE INDEX orders_client_reference_key ON orders (shard_id, account_id, client_reference) WHERE client_reference IS NOT NULL;
-- Fulfilment's queue: the waiting orders by position.
CREATE INDEX orders_unqueued ON orders (shard_id, placed_position) WHERE NOT is_queued AND status = 'PENDING';
CREATE INDEX orders_waiting ON orders (shard_id, product_id, denomination, placed_position) WHERE is_queued AND status IN ('PENDING', 'DELAYED', 'PARTIALLY_DELIVERED');

CREATE TABLE webhooks (
    shard_id      smallint       NOT NULL,
    id            bigint         NOT NULL,
    version       bigint         NOT NULL,
    account_id    bigint         NOT NULL,
    credential_id bigint,
    events        text[]         NOT NULL,
    is_active     boolean        NOT NULL,
    is_deleted    boolean        NOT NULL,
    created_at    timestamptz(3) NOT NULL,
    updated_at    timestamptz(3) NOT NULL,
    CONSTRAINT webhooks_pkey PRIMARY KEY (shard_id, id),
    CONSTRAINT webhooks_deleted_check CHECK (NOT (is_deleted AND is_active))
);
CREATE INDEX webhooks_account ON webhooks (shard_id, account_id, id);

-- ------------------------------------------------------ catching-up projections (of the log)

-- How far each has come.
CREATE TABLE projection_checkpoints (
    shard_id   smallint    NOT NULL,
    projection text        NOT NULL,
    position   bigint      NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (shard_id, projection)
) WITH (fillfactor = 10);

-- Who listens, as of the deliveries projection's checkpoint (the table webhooks is ahead of it).
CREATE TABLE webhook_audience (
    shard_id      smallint       NOT NULL,
    webhook_id    bigint         NOT NULL,
    version       bigint         NOT NULL,
    account_id    bigint         NOT NULL,
    credential_id bigint,
    events        text[]         NOT NULL,
    is_active     boolean        NOT NULL,
    is_deleted    boolean        NOT NULL,
    created_at    timestamptz(3) NOT NULL,
    updated_at    timestamptz(3) NOT NULL,
    CONSTRAINT webhook_audience_pkey PRIMARY KEY (shard_id, webhook_id)
);
CREATE INDEX webhook_audience_account ON webhook_audience (shard_id, account_id);

-- One per event that somebody hears; its payload is built once, and sent unchanged.
CREATE TABLE webhook_envelopes (
    shard_id   smallint       NOT NULL,
    event_id   uuid           NOT NULL,
    position   bigint         NOT NULL,
    account_id bigint         NOT NULL,
    order_id   bigint         NOT NULL,
    event_type text           NOT NULL,
    payload    text           NOT NULL,
    created_at timestamptz(3) NOT NULL,
    CONSTRAINT webhook_envelopes_pkey PRIMARY KEY (shard_id, event_id)
);

-- One per event and webhook that was subscribed at the event's position; replay_id 0 is the one
-- that the event made.
CREATE TABLE deliveries (
    shard_id   smallint       NOT NULL,
    id         bigint         NOT NULL,
    event_id   uuid           NOT NULL,
    webhook_id bigint         NOT NULL,
    replay_id  bigint         NOT NULL DEFAULT 0,
    account_id bigint         NOT NULL,
    order_id   bigint         NOT NULL,
    event_type text           NOT NULL,
    created_at timestamptz(3) NOT NULL,
    CONSTRAINT deliveries_pkey PRIMARY KEY (shard_id, id),
    CONSTRAINT deliveries_natural_key UNIQUE (shard_id, event_id, webhook_id, replay_id)
);
CREATE INDEX deliveries_account ON deliveries (shard_id, account_id, id);

-- --------------------------------------------- the delivery worker's record (never rebuilt)

CREATE TABLE delivery_state (
    shard_id         smallint       NOT NULL,
    delivery_id      bigint         NOT NULL,
    webhook_id       bigint         NOT NULL,
    status           text           NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'delivered', 'failed')),
    attempt_count    smallint       NOT NULL DEFAULT 0 CHECK (attempt_count BETWEEN 0 AND 5),
    unknown_count    smallint       NOT NULL DEFAULT 0, -- attempts with an unknown outcome, not counted
    next_attempt_at  timestamptz(3) NOT NULL,
    fence            bigint         NOT NULL DEFAULT 0, -- grows with every claim
    leased_until     timestamptz(3),
    response_status  smallint,
    response_time_ms integer,
    response_body    text,                              -- of the latest attempt only
    delivered_at     timestamptz(3),
    PRIMARY KEY (shard_id, delivery_id),
    CONSTRAINT delivery_state_delivered_check CHECK ((status = 'delivered') = (delivered_at IS NOT NULL))
) WITH (fillfactor = 70);
-- Apart, so that a backlog of first attempts does not hide the retries.
CREATE INDEX delivery_state_due_first ON delivery_state (shard_id, webhook_id, next_attempt_at) WHERE status = 'pending' AND attempt_count = 0;
CREATE INDEX delivery_state_due_retry ON delivery_state (shard_id, webhook_id, next_attempt_at) WHERE status = 'pending' AND attempt_count > 0;
CREATE INDEX delivery_state_leased ON delivery_state (shard_id, webhook_id) WHERE leased_until IS NOT NULL;

CREATE TABLE delivery_attempts (
    shard_id         smallint       NOT NULL,
    delivery_id      bigint         NOT NULL,
    request_id       uuid           NOT NULL,
    attempt          smallint       NOT NULL CHECK (attempt BETWEEN 1 AND 5),
    started_at       timestamptz(3) NOT NULL,
    finished_at      timestamptz(3), -- null while in flight, or for ever when the outcome is unknown
    response_status  smallint,
    response_time_ms integer,
    error            text,
    url_hash         text           NOT NULL, -- which URL and secret it was sent with
    secret_hash      text           NOT NULL,
    PRIMARY KEY (shard_id, delivery_id, request_id)
);

-- ----------------------------------------------------------------------------- the vault
-- What must never be in the log: sealed or hashed, and erasable.

CREATE SCHEMA vault;

-- Free text from people: order.metadata, order.cancel_reason, webhook.name, webhook.url,
-- webhook.token, transaction.note. Each is bound to its kind and id.
CREATE TABLE vault.texts (
    shard_id smallint NOT NULL,
    kind     text     NOT NULL,
    id       bigint   NOT NULL,
    salt     bytea    NOT NULL, -- of the hash by which the log commits to the text
    sealed   bytea    NOT NULL,
    PRIMARY KEY (shard_id, kind, id)
);

CREATE TABLE vault.credentials (
    credential_id  bigint PRIMARY KEY,
    key_hash       bytea  NOT NULL UNIQUE, -- SHA-256 of the API key
    secret_hash    bytea  NOT NULL,        -- SHA-256 of the API secret (256 random bits)
    signing_secret bytea                   -- sealed
);

CREATE TABLE vault.operators (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text           NOT NULL,
    role       text           NOT NULL CHECK (role IN ('admin', 'finance', 'auditor')),
    token_hash bytea          NOT NULL UNIQUE, -- SHA-256 of the token
    created_at timestamptz(3) NOT NULL DEFAULT now(),
    revoked_at timestamptz(3)
);

-- The stock. A voucher goes to one order, claimed by the writer under the head lock.
CREATE TABLE vault.vouchers (
    shard_id     smallint       NOT NULL,
    id           bigint         NOT NULL DEFAULT nextval('voucher_ids'),
    product_id   bigint         NOT NULL,
    denomination numeric(18, 2) NOT NULL,
    reference    text           NOT NULL, -- voucher_reference_number
    fingerprint  bytea          NOT NULL, -- keyed hash of the card number, to refuse duplicates
    sealed       bytea          NOT NULL, -- {card_number, pin, claim_url}
    expires_on   date,
    order_id     bigint,
    PRIMARY KEY (shard_id, id)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX vouchers_fingerprint_key ON vault.vouchers (shard_id, product_id, fingerprint);
CREATE UNIQUE INDEX vouchers_reference_key ON vault.vouchers (shard_id, reference);
CREATE INDEX vouchers_available ON vault.vouchers (shard_id, product_id, denomination, id) WHERE order_id IS NULL;
CREATE INDEX vouchers_order ON vault.vouchers (shard_id, order_id) WHERE order_id IS NOT NULL;

-- Where a rebuild prepares its tables before it swaps them in.
CREATE SCHEMA shadow;

-- ------------------------------------------------------------------------- privileges

GRANT USAGE ON SCHEMA public, vault TO ledger_runtime;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public, vault TO ledger_runtime;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public, vault TO ledger_runtime;
REVOKE UPDATE, DELETE ON events FROM ledger_runtime;
REVOKE INSERT, DELETE ON log_head FROM ledger_runtime;
-- Which migrations are applied is for the migrating role to say.
REVOKE INSERT, UPDATE, DELETE ON _sqlx_migrations FROM ledger_runtime;
