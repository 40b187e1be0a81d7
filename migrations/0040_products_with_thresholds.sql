-- no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS products_with_thresholds ON products (id) WHERE details->'stock_thresholds' IS NOT NULL;
