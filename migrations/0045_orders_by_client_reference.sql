-- no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS orders_client_reference ON orders (client_reference COLLATE "C") WHERE client_reference IS NOT NULL;
