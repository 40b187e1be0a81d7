-- How many orders of a status lie between two dates, and where a page of them begins, without counting each.

-- Whoever counts waits, and before it has anything that is wanted here; readers go on.
LOCK TABLE list_checkpoints IN EXCLUSIVE MODE;

-- An account's orders of a status that lie after one of its marks and up to the next, as of the position that
-- list_checkpoints names. What lies before the first mark is counted when it is asked for.
CREATE TABLE order_mark_counts (
    shard_id   smallint NOT NULL,
    account_id bigint   NOT NULL,
    status     text     NOT NULL,
    after      bigint   NOT NULL, -- the mark's key
    orders     bigint   NOT NULL,
    CONSTRAINT order_mark_counts_pkey PRIMARY KEY (shard_id, account_id, status, after)
) WITH (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE, DELETE ON order_mark_counts TO ledger_runtime;
CREATE INDEX order_marks_key ON order_marks (shard_id, account_id, key);

-- How the events after one position, up to another one, move orders of a shard from one status to another. Its tables
-- are named in a text, and with their schema: a rebuild replaces them, and others hide them.
CREATE FUNCTION order_moves(in_shard smallint, after_position bigint, upto_position bigint)
RETURNS TABLE (account_id bigint, product_id bigint, status text, placed_position bigint, orders bigint) LANGUAGE sql STABLE AS $$
    WITH touched AS MATERIALIZED (
        SELECT e.stream_id, min(e.version) AS first_version,
               (array_agg(public.order_status_after(e.type) ORDER BY e.version DESC))[1] AS status
        FROM public.events e
        WHERE e.shard_id = in_shard AND e.position > after_position AND e.position <= upto_position
          AND e.stream_type = 'order' AND public.order_status_after(e.type) IS NOT NULL
        GROUP BY e.stream_id),
    moved AS MATERIALIZED (
        SELECT o.account_id, o.product_id, o.placed_position, touched.status,
               CASE WHEN touched.first_version > 1 THEN
                   (SELECT public.order_status_after(b.type) FROM public.events b
                    WHERE b.shard_id = in_shard AND b.stream_type = 'order' AND b.stream_id = touched.stream_id
                      AND b.version < touched.first_version AND public.order_status_after(b.type) IS NOT NULL
                    ORDER BY b.version DESC LIMIT 1) END AS status_before
        FROM touched JOIN public.orders o ON o.shard_id = in_shard AND o.id = touched.stream_id)
    SELECT m.account_id, m.product_id, m.status, m.placed_position, 1::bigint FROM moved m
    UNION ALL
    SELECT m.account_id, m.product_id, m.status_before, m.placed_position, -1::bigint FROM moved m WHERE m.status_before IS NOT NULL
$$;
CREATE OR REPLACE FUNCTION order_changes(in_shard smallint, after_position bigint, upto_position bigint)
RETURNS TABLE (account_id bigint, product_id bigint, status text, orders bigint) LANGUAGE sql STABLE AS $$
    SELECT m.account_id, m.product_id, m.status, sum(m.orders)::bigint
    FROM public.order_moves(in_shard, after_position, upto_position) AS m
    GROUP BY 1, 2, 3 HAVING sum(m.orders) <> 0
$$;

-- What is there already, in one snapshot: the counts anew, for they have to be of the same position.
DELETE FROM order_counts;
DELETE FROM order_marks;
WITH counted AS (
    INSERT INTO order_counts SELECT shard_id, account_id, product_id, status, count(*) FROM orders GROUP BY 1, 2, 3, 4),
ordered AS MATERIALIZED (
    SELECT shard_id, account_id, status, placed_position, created_at,
           row_number() OVER (PARTITION BY shard_id, account_id ORDER BY placed_position) AS ordinal FROM orders),
marked AS (
    INSERT INTO order_marks SELECT shard_id, account_id, ordinal, placed_position, created_at FROM ordered WHERE ordinal % 500 = 0),
by_mark AS (
    INSERT INTO order_mark_counts
    SELECT o.shard_id, o.account_id, o.status, m.placed_position, count(*)
    FROM ordered o JOIN ordered m ON m.shard_id = o.shard_id AND m.account_id = o.account_id AND m.ordinal = (o.ordinal - 1) / 500 * 500
    GROUP BY 1, 2, 3, 4)
INSERT INTO list_checkpoints (shard_id, position) SELECT shard_id, position FROM log_head
ON CONFLICT (shard_id) DO UPDATE SET position = excluded.position;

-- A node that does not know these counts would move on without them. At the end: this keeps readers waiting.
ALTER TABLE list_checkpoints ADD COLUMN marked_position bigint NOT NULL DEFAULT 0;
UPDATE list_checkpoints SET marked_position = position;
ALTER TABLE list_checkpoints ADD CONSTRAINT list_checkpoints_marked_check CHECK (marked_position = position);
