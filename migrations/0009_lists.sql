-- What makes the pages of lists fast, however long the log is: marks, to find a page without
-- counting up to it, and counts. Both are derived, and exact: a reader adds what came after them.

-- Every 500th order of an account, and which one it is (orders are never deleted, and their
-- positions only grow).
CREATE TABLE order_marks (
    shard_id   smallint       NOT NULL,
    account_id bigint         NOT NULL,
    ordinal    bigint         NOT NULL, -- from 1, the oldest
    key        bigint         NOT NULL, -- its placed_position
    created_at timestamptz(3) NOT NULL,
    CONSTRAINT order_marks_pkey PRIMARY KEY (shard_id, account_id, ordinal)
);
CREATE INDEX order_marks_time ON order_marks (shard_id, account_id, created_at, ordinal);

-- An account's orders, as of the position that list_checkpoints names.
CREATE TABLE order_counts (
    shard_id   smallint NOT NULL,
    account_id bigint   NOT NULL,
    product_id bigint   NOT NULL,
    status     text     NOT NULL,
    orders     bigint   NOT NULL,
    CONSTRAINT order_counts_pkey PRIMARY KEY (shard_id, account_id, product_id, status)
) WITH (fillfactor = 50);

CREATE TABLE list_checkpoints (
    shard_id smallint NOT NULL,
    position bigint   NOT NULL,
    CONSTRAINT list_checkpoints_pkey PRIMARY KEY (shard_id)
) WITH (fillfactor = 10);

-- Every 500th delivery of an account by id, and the counts: written with the deliveries.
CREATE TABLE delivery_marks (
    shard_id   smallint NOT NULL,
    account_id bigint   NOT NULL,
    ordinal    bigint   NOT NULL,
    key        bigint   NOT NULL, -- its id
    CONSTRAINT delivery_marks_pkey PRIMARY KEY (shard_id, account_id, ordinal)
);
CREATE TABLE delivery_counts (
    shard_id   smallint NOT NULL,
    account_id bigint   NOT NULL,
    webhook_id bigint   NOT NULL,
    event_type text     NOT NULL,
    deliveries bigint   NOT NULL,
    CONSTRAINT delivery_counts_pkey PRIMARY KEY (shard_id, account_id, webhook_id, event_type)
) WITH (fillfactor = 50);

-- A group of the counts, newest first.
CREATE INDEX orders_listing ON orders (shard_id, account_id, product_id, status, placed_position);
CREATE INDEX deliveries_listing ON deliveries (shard_id, account_id, webhook_id, event_type, id);
CREATE INDEX deliveries_order ON deliveries (shard_id, account_id, order_id, id);
-- What is final; what is pending is found by when it is due.
CREATE INDEX delivery_state_delivered ON delivery_state (shard_id, webhook_id, delivery_id) WHERE status = 'delivered';
CREATE INDEX delivery_state_failed ON delivery_state (shard_id, webhook_id, delivery_id) WHERE status = 'failed';

-- The status that an order has after an event; null if the event leaves it as it is.
CREATE FUNCTION order_status_after(event_type text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE event_type WHEN 'OrderPlaced' THEN 'PENDING' WHEN 'OrderDelayed' THEN 'DELAYED'
        WHEN 'OrderPartiallyDelivered' THEN 'PARTIALLY_DELIVERED' WHEN 'OrderDelivered' THEN 'DELIVERED'
        WHEN 'OrderCancelled' THEN 'CANCELLED' END
$$;

-- How the events after one position, up to another one, change the counts of a shard. Its tables
-- are named in a text, and with their schema: a rebuild replaces them, and others hide them.
CREATE FUNCTION order_changes(in_shard smallint, after_position bigint, upto_position bigint)
RETURNS TABLE (account_id bigint, product_id bigint, status text, orders bigint) LANGUAGE sql STABLE AS $$
    WITH touched AS MATERIALIZED (
        SELECT e.stream_id, min(e.version) AS first_version,
               (array_agg(public.order_status_after(e.type) ORDER BY e.version DESC))[1] AS status
        FROM public.events e
        WHERE e.shard_id = in_shard AND e.position > after_position AND e.position <= upto_position
          AND e.stream_type = 'order' AND public.order_status_after(e.type) IS NOT NULL
        GROUP BY e.stream_id),
    moved AS MATERIALIZED (
        SELECT o.account_id, o.product_id, touched.status,
               CASE WHEN touched.first_version > 1 THEN
                   (SELECT public.order_status_after(b.type) FROM public.events b
                    WHERE b.shard_id = in_shard AND b.stream_type = 'order' AND b.stream_id = touched.stream_id
                      AND b.version < touched.first_version AND public.order_status_after(b.type) IS NOT NULL
                    ORDER BY b.version DESC LIMIT 1) END AS status_before
        FROM touched JOIN public.orders o ON o.shard_id = in_shard AND o.id = touched.stream_id)
    SELECT c.account_id, c.product_id, c.status, sum(c.n)::bigint
    FROM (SELECT m.account_id, m.product_id, m.status, 1 AS n FROM moved m
          UNION ALL SELECT m.account_id, m.product_id, m.status_before, -1 FROM moved m WHERE m.status_before IS NOT NULL) AS c
    GROUP BY 1, 2, 3 HAVING sum(c.n) <> 0
$$;

-- What is there already, each in one snapshot.
WITH counted AS (
    INSERT INTO order_counts SELECT shard_id, account_id, product_id, status, count(*) FROM orders GROUP BY 1, 2, 3, 4)
INSERT INTO list_checkpoints SELECT shard_id, position FROM log_head;
INSERT INTO order_marks
SELECT shard_id, account_id, ordinal, placed_position, created_at
FROM (SELECT shard_id, account_id, placed_position, created_at,
             row_number() OVER (PARTITION BY shard_id, account_id ORDER BY placed_position) AS ordinal FROM orders) AS o
WHERE ordinal % 500 = 0;
INSERT INTO delivery_counts SELECT shard_id, account_id, webhook_id, event_type, count(*) FROM deliveries GROUP BY 1, 2, 3, 4;
INSERT INTO delivery_marks
SELECT shard_id, account_id, ordinal, id
FROM (SELECT shard_id, account_id, id, row_number() OVER (PARTITION BY shard_id, account_id ORDER BY id) AS ordinal FROM deliveries) AS d
WHERE ordinal % 500 = 0;

GRANT SELECT, INSERT, UPDATE, DELETE ON order_marks, order_counts, list_checkpoints, delivery_marks, delivery_counts TO ledger_runtime;
