-- Vouchers that moved between products. The last release writes none of these columns, and no row that it writes has such movements.
ALTER TABLE stock_days
    ADD COLUMN transferred_in           bigint         NOT NULL DEFAULT 0,
    ADD COLUMN transferred_in_unpriced  bigint         NOT NULL DEFAULT 0, -- those without a known cost
    ADD COLUMN transferred_in_cost      numeric(26, 2) NOT NULL DEFAULT 0,
    ADD COLUMN transferred_out          bigint         NOT NULL DEFAULT 0,
    ADD COLUMN transferred_out_unpriced bigint         NOT NULL DEFAULT 0,
    ADD COLUMN transferred_out_cost     numeric(26, 2) NOT NULL DEFAULT 0;
