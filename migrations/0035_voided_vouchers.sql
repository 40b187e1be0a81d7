-- Vouchers that operators have withdrawn from the stock. The order of a voided voucher is 0, which no order has: nodes of
-- the last release do not know the column, and give only vouchers without an order to orders.
ALTER TABLE vault.vouchers ADD COLUMN voided_at timestamptz(3);
