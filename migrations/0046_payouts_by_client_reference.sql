-- no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS payouts_client_reference ON payouts (client_reference COLLATE "C") WHERE client_reference IS NOT NULL;
