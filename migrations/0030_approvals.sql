-- Movements of money that wait for a second operator: an inline projection of their streams. The operators' words stand in
-- vault.texts (approval.note, approval.reason). A request expires by time, so its row stays PENDING.
CREATE SEQUENCE approval_ids;

CREATE TABLE approvals (
    shard_id           smallint         NOT NULL,
    id                 bigint           NOT NULL,
    version            bigint           NOT NULL,
    requested_event_id uuid             NOT NULL,
    last_event_id      uuid             NOT NULL,
    account_id         bigint           NOT NULL,
    requested          json             NOT NULL, -- the payload of the request
    reference          text COLLATE "C",          -- of a funding
    payout_id          bigint,                    -- of a settlement
    status             text             NOT NULL CHECK (status IN ('PENDING', 'GRANTED', 'REJECTED')),
    expires_at         timestamptz(3)   NOT NULL,
    decided_by         json,
    transaction_id     bigint,
    created_at         timestamptz(3)   NOT NULL,
    decided_at         timestamptz(3),
    updated_at         timestamptz(3)   NOT NULL,
    CONSTRAINT approvals_pkey PRIMARY KEY (shard_id, id),
    CONSTRAINT approvals_decided_check CHECK ((status = 'PENDING') = (decided_at IS NULL))
);
CREATE INDEX approvals_account ON approvals (shard_id, account_id, id);
-- The requests that take a reference or a payout.
CREATE INDEX approvals_references ON approvals (shard_id, reference) WHERE status = 'PENDING' AND reference IS NOT NULL;
CREATE INDEX approvals_payouts ON approvals (shard_id, payout_id) WHERE status = 'PENDING' AND payout_id IS NOT NULL;

GRANT SELECT, INSERT, UPDATE, DELETE ON approvals TO ledger_runtime;
GRANT USAGE ON SEQUENCE approval_ids TO ledger_runtime;
