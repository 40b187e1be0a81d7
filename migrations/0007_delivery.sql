-- The delivery worker's tables change more often than any other: each delivery is leased, attempted
-- and settled within milliseconds. Room in the page lets an attempt's result replace its row in
-- place, and vacuuming early keeps the front of the indexes on what is due short.

ALTER TABLE delivery_state SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE delivery_attempts SET (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000
);
