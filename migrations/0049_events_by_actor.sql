-- no-transaction
-- Bloom filters of the actors and accounts in each range of pages, for the audit. A search reads all filters, a few
-- milliseconds for five million events, and then few ranges. The writer pays next to nothing: only whole ranges are
-- summarized, in the background. The third column is the kind of the actor, such as `operator` of `{"operator":3}`.
CREATE INDEX CONCURRENTLY IF NOT EXISTS events_by_actor ON events
USING brin (
    position,
    (metadata->>'actor') text_bloom_ops (n_distinct_per_range = 200, false_positive_rate = 0.001),
    (translate(metadata->>'actor', '{":0123456789}', '')) text_bloom_ops (n_distinct_per_range = 16),
    (metadata->>'account_id') text_bloom_ops (n_distinct_per_range = 200, false_positive_rate = 0.001)
)
WITH (pages_per_range = 32, autosummarize = on);
