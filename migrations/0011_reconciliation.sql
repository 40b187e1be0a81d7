-- Daily totals, and statements of banks and payment processors.

-- What moved in a wallet on a day (UTC), up to the checkpoint of daily_totals in
-- projection_checkpoints. A day on which nothing moved has no row, but for the day on which the
-- wallet was opened.
CREATE TABLE daily_totals (
    shard_id           smallint       NOT NULL,
    wallet_id          bigint         NOT NULL,
    day                date           NOT NULL,
    account_id         bigint         NOT NULL,
    currency           text           NOT NULL,
    funding            numeric(26, 2) NOT NULL,
    order_debits       numeric(26, 2) NOT NULL,
    payout_debits      numeric(26, 2) NOT NULL,
    order_refunds      numeric(26, 2) NOT NULL,
    payout_refunds     numeric(26, 2) NOT NULL,
    adjustment_credits numeric(26, 2) NOT NULL,
    adjustment_debits  numeric(26, 2) NOT NULL,
    movements          bigint         NOT NULL,
    closing_balance    numeric(26, 2) NOT NULL,
    first_position     bigint         NOT NULL, -- of the day's first event of the wallet
    last_position      bigint         NOT NULL,
    CONSTRAINT daily_totals_pkey PRIMARY KEY (shard_id, wallet_id, day)
) WITH (fillfactor = 60);
CREATE INDEX daily_totals_day ON daily_totals (shard_id, day);
CREATE INDEX daily_totals_account ON daily_totals (shard_id, account_id, day);

-- Rows are inserted in the order of their positions, so this finds a range of them at the price of
-- a few pages.
CREATE INDEX wallet_transactions_position ON wallet_transactions USING brin (position) WITH (pages_per_range = 32, autosummarize = on);
-- What a bank's statement is matched with.
CREATE INDEX wallet_transactions_fundings ON wallet_transactions (shard_id, position) WHERE category = 'FUNDING';
CREATE INDEX payouts_paid ON payouts (shard_id, settled_at) WHERE status = 'PAID';

CREATE SEQUENCE bank_statement_ids;
CREATE SEQUENCE match_decision_ids;

-- An inline projection: the statements that were imported, and what people decided about their lines.
CREATE TABLE bank_statements (
    shard_id    smallint       NOT NULL,
    id          bigint         NOT NULL,
    version     bigint         NOT NULL,
    format      text           NOT NULL CHECK (format IN ('csv', 'camt.053')),
    fingerprint text           NOT NULL, -- keyed hash of the file
    lines       integer        NOT NULL CHECK (lines > 0),
    first_day   date           NOT NULL,
    last_day    date           NOT NULL CHECK (last_day >= first_day),
    decisions   json           NOT NULL, -- {line: {id, decision, transaction_id | payout_id}}
    created_at  timestamptz(3) NOT NULL,
    updated_at  timestamptz(3) NOT NULL,
    CONSTRAINT bank_statements_pkey PRIMARY KEY (shard_id, id)
);
CREATE UNIQUE INDEX bank_statements_fingerprint_key ON bank_statements (shard_id, fingerprint);

-- The lines, written before the event that imports them: people's names and words are in them.
CREATE TABLE vault.statement_lines (
    shard_id         smallint NOT NULL,
    fingerprint      text     NOT NULL, -- of the statement
    line             integer  NOT NULL CHECK (line > 0),
    line_fingerprint bytea    NOT NULL, -- keyed hash of what makes a line the same line in two files
    sealed           bytea    NOT NULL,
    PRIMARY KEY (shard_id, fingerprint, line)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON daily_totals, bank_statements, vault.statement_lines TO ledger_runtime;
GRANT USAGE ON SEQUENCE bank_statement_ids, match_decision_ids TO ledger_runtime;
