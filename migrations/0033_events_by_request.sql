-- no-transaction
-- Bloom filters of the request IDs in each range of pages. A search reads all filters and few ranges. The writer pays next
-- to nothing: only whole ranges are summarized, in the background. A B-tree of random IDs would cost each event one more
-- page that no other event touches.
CREATE INDEX CONCURRENTLY IF NOT EXISTS events_request ON events
USING brin ((metadata->>'request_id') text_bloom_ops (n_distinct_per_range = 500, false_positive_rate = 0.0005))
WITH (pages_per_range = 64, autosummarize = on);
