-- Time at which a worker has claimed a delivery for the attempt. It never changes, so an index on it makes recording a result no
-- more expensive. Attempts before this migration have none, and the list of attempts leaves them out.
ALTER TABLE delivery_attempts ADD COLUMN claimed_at timestamptz(3);
-- For nodes of the last release.
ALTER TABLE delivery_attempts ALTER COLUMN claimed_at SET DEFAULT clock_timestamp();
