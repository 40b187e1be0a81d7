-- no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS products_by_brand ON products (((details->>'brand') COLLATE "C"));
