-- What the writer sends: rows as values of composite types, one array a table, so that one
-- statement writes a whole batch. A type belongs to the program's text, not to the table: a column
-- that is added later comes with a new type, and nodes of two versions work side by side.

CREATE TYPE event_row AS (
    shard_id       smallint,
    position       bigint,
    event_id       uuid,
    stream_type    text,
    stream_id      bigint,
    version        bigint,
    type           text,
    schema_version smallint,
    data           json,
    metadata       json,
    recorded_at    timestamptz
);

CREATE TYPE wallet_row AS (
    shard_id   smallint,
    id         bigint,
    version    bigint,
    account_id bigint,
    currency   text,
    balance    numeric,
    created_at timestamptz,
    updated_at timestamptz
);

CREATE TYPE wallet_transaction_row AS (
    shard_id      smallint,
    id            bigint,
    position      bigint,
    wallet_id     bigint,
    account_id    bigint,
    type          text,
    category      text,
    amount        numeric,
    balance_after numeric,
    currency      text,
    order_id      bigint,
    reference     text,
    created_at    timestamptz
);

CREATE TYPE order_row AS (
    shard_id           smallint,
    id                 bigint,
    version            bigint,
    placed_position    bigint,
    placed_event_id    uuid,
    last_event_id      uuid,
    account_id         bigint,
    reference_code     text,
    client_reference   text,
    product_id         bigint,
    product_name       text,
    currency           text,
    denomination       numeric,
    quantity           integer,
    face_value         numeric,
    discount           numeric,
    discount_amount    numeric,
    amount             numeric,
    wallet_id          bigint,
    transaction_id     bigint,
    metadata_hash      text,
    status             text,
    sub_status         text,
    is_queued          boolean,
    delivered_quantity integer,
    items              json,
    delivered_on       timestamptz,
    cancelled_on       timestamptz,
    refunded_amount    numeric,
    created_at         timestamptz,
    updated_at         timestamptz
);

-- What changes of an order.
CREATE TYPE order_change AS (
    shard_id           smallint,
    id                 bigint,
    version            bigint,
    last_event_id      uuid,
    status             text,
    sub_status         text,
    is_queued          boolean,
    delivered_quantity integer,
    items              json,
    delivered_on       timestamptz,
    cancelled_on       timestamptz,
    refunded_amount    numeric,
    updated_at         timestamptz
);

CREATE TYPE idempotency_key_row AS (
    shard_id    smallint,
    key_hash    bytea,
    fingerprint bytea,
    status      smallint,
    body        bytea,
    is_sealed   boolean,
    created_at  timestamptz
);

CREATE TYPE vault_text_row AS (
    shard_id smallint,
    kind     text,
    id       bigint,
    salt     bytea,
    sealed   bytea
);

CREATE TYPE voucher_claim AS (
    shard_id smallint,
    id       bigint,
    order_id bigint
);

-- A statement that touched another number of rows than its program meant to is undone.
CREATE FUNCTION is_expected(actual bigint, expected bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF actual <> expected THEN
        RAISE EXCEPTION '% rows were to be changed, % were there', expected, actual USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN true;
END $$;
