-- Purchases of vouchers from suppliers.

CREATE SEQUENCE purchase_ids;

-- An inline projection.
CREATE TABLE purchases (
    shard_id           smallint         NOT NULL,
    id                 bigint           NOT NULL,
    version            bigint           NOT NULL,
    order_id           bigint           NOT NULL,
    product_id         bigint           NOT NULL,
    currency           text COLLATE "C" NOT NULL,
    denomination       numeric(18, 2)   NOT NULL,
    quantity           integer          NOT NULL CHECK (quantity > 0),
    supplier           text COLLATE "C" NOT NULL,
    sku                text             NOT NULL,
    reserved           numeric(18, 2)   NOT NULL,
    key                uuid             NOT NULL, -- idempotency key at the supplier: the id of the event PurchaseRequested
    status             text             NOT NULL CHECK (status IN ('REQUESTED', 'PENDING', 'FULFILLED', 'REFUSED')),
    spent              numeric(18, 2)   NOT NULL, -- what counts against the budget of the day
    vouchers           integer          NOT NULL,
    usable             integer          NOT NULL, -- those that an order can get
    supplier_reference text,
    refusal            text,
    may_succeed_later  boolean          NOT NULL,
    requested_at       timestamptz(3)   NOT NULL,
    updated_at         timestamptz(3)   NOT NULL,
    CONSTRAINT purchases_pkey PRIMARY KEY (shard_id, id)
);
CREATE INDEX purchases_open ON purchases (shard_id, product_id, denomination) WHERE status IN ('REQUESTED', 'PENDING');
CREATE INDEX purchases_order ON purchases (shard_id, order_id);
CREATE INDEX purchases_day ON purchases (shard_id, supplier, currency, requested_at);

-- Work on open purchases. Not derived from the log: losing a row costs a question to the supplier.
CREATE TABLE purchase_calls (
    shard_id     smallint    NOT NULL,
    purchase_id  bigint      NOT NULL,
    attempts     integer     NOT NULL DEFAULT 0,
    due_at       timestamptz NOT NULL DEFAULT '-infinity',
    leased_until timestamptz NOT NULL DEFAULT '-infinity',
    problem      text, -- of the last attempt, if its outcome is unknown
    CONSTRAINT purchase_calls_pkey PRIMARY KEY (shard_id, purchase_id)
);

-- Rate and circuit breaker of each supplier, for all nodes together.
CREATE TABLE supplier_calls (
    supplier   text COLLATE "C" NOT NULL PRIMARY KEY,
    next_at    timestamptz      NOT NULL DEFAULT '-infinity',
    failures   integer          NOT NULL DEFAULT 0, -- in a row
    open_until timestamptz      NOT NULL DEFAULT '-infinity'
);

GRANT SELECT, INSERT, UPDATE, DELETE ON purchases, purchase_calls, supplier_calls TO ledger_runtime;
GRANT USAGE ON SEQUENCE purchase_ids TO ledger_runtime;
