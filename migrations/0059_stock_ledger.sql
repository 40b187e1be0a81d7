-- The voucher stock as a ledger: what it gained and lost by product and day (UTC), up to the checkpoint of stock_days in
-- projection_checkpoints. The log determines both tables.
CREATE TABLE stock_days (
    shard_id           smallint       NOT NULL,
    day                date           NOT NULL,
    product_id         bigint         NOT NULL,
    sales              numeric(26, 2) NOT NULL, -- what customers paid for the allocated vouchers
    loaded             bigint         NOT NULL,
    loaded_unpriced    bigint         NOT NULL, -- those without a known cost
    loaded_cost        numeric(26, 2) NOT NULL,
    allocated          bigint         NOT NULL,
    allocated_unpriced bigint         NOT NULL,
    allocated_cost     numeric(26, 2) NOT NULL,
    voided             bigint         NOT NULL,
    voided_unpriced    bigint         NOT NULL,
    voided_cost        numeric(26, 2) NOT NULL,
    expired            bigint         NOT NULL,
    expired_unpriced   bigint         NOT NULL,
    expired_cost       numeric(26, 2) NOT NULL,
    CONSTRAINT stock_days_pkey PRIMARY KEY (shard_id, day, product_id)
) WITH (fillfactor = 60);

-- Cost of each voucher that was loaded with one.
CREATE TABLE stock_costs (
    shard_id  smallint         NOT NULL,
    reference text COLLATE "C" NOT NULL,
    cost      numeric(18, 2)   NOT NULL,
    CONSTRAINT stock_costs_pkey PRIMARY KEY (shard_id, reference)
);

-- When the expiry of a voucher was recorded in the log. Nodes of the last release do not know the column, and give no expired
-- voucher to an order.
ALTER TABLE vault.vouchers ADD COLUMN expired_at timestamptz(3);

GRANT SELECT, INSERT, UPDATE, DELETE ON stock_days, stock_costs TO ledger_runtime;
