-- Beneficiaries and payouts: inline projections of their streams. Who a beneficiary is stands in
-- vault.texts (beneficiary.profile, beneficiary.account_number), as does why a payout failed
-- (payout.failure_reason).

CREATE SEQUENCE beneficiary_ids;
CREATE SEQUENCE payout_ids;

CREATE TABLE beneficiaries (
    shard_id   smallint       NOT NULL,
    id         bigint         NOT NULL,
    version    bigint         NOT NULL,
    account_id bigint         NOT NULL,
    type       text           NOT NULL CHECK (type IN ('BANK', 'MOBILE_WALLET')),
    country    text           NOT NULL,
    currency   text           NOT NULL,
    is_deleted boolean        NOT NULL,
    created_at timestamptz(3) NOT NULL,
    updated_at timestamptz(3) NOT NULL,
    CONSTRAINT beneficiaries_pkey PRIMARY KEY (shard_id, id)
);
CREATE INDEX beneficiaries_account ON beneficiaries (shard_id, account_id, id) WHERE NOT is_deleted;

CREATE TABLE payouts (
    shard_id              smallint       NOT NULL,
    id                    bigint         NOT NULL,
    version               bigint         NOT NULL,
    requested_event_id    uuid           NOT NULL,
    last_event_id         uuid           NOT NULL,
    account_id            bigint         NOT NULL,
    beneficiary_id        bigint         NOT NULL,
    wallet_id             bigint         NOT NULL,
    amount                numeric(18, 2) NOT NULL CHECK (amount > 0),
    currency              text           NOT NULL,
    client_reference      text,
    transaction_id        bigint         NOT NULL,
    status                text           NOT NULL CHECK (status IN ('PENDING', 'PAID', 'FAILED', 'CANCELLED')),
    refund_transaction_id bigint,
    created_at            timestamptz(3) NOT NULL,
    settled_at            timestamptz(3),
    updated_at            timestamptz(3) NOT NULL,
    CONSTRAINT payouts_pkey PRIMARY KEY (shard_id, id),
    CONSTRAINT payouts_settled_check CHECK ((status = 'PENDING') = (settled_at IS NULL)),
    CONSTRAINT payouts_refund_check CHECK ((status IN ('FAILED', 'CANCELLED')) = (refund_transaction_id IS NOT NULL))
) WITH (fillfactor = 90);
CREATE INDEX payouts_account ON payouts (shard_id, account_id, id);
-- What operators have to settle.
CREATE INDEX payouts_pending ON payouts (shard_id, id) WHERE status = 'PENDING';
CREATE UNIQUE INDEX payouts_client_reference_key ON payouts (shard_id, account_id, client_reference) WHERE client_reference IS NOT NULL;

GRANT SELECT, INSERT, UPDATE, DELETE ON beneficiaries, payouts TO ledger_runtime;
GRANT USAGE ON SEQUENCE beneficiary_ids, payout_ids TO ledger_runtime;
