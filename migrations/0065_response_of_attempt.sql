-- Body of the response to a failed attempt, so that a delivery has the body of every attempt. The body of the latest response is
-- in `delivery_state`, also that of a success. Nodes of the last release keep no other.
ALTER TABLE delivery_attempts ADD COLUMN response_body text;
-- An erasure would not find samples in the planner's statistics.
ALTER TABLE delivery_attempts ALTER COLUMN response_body SET STATISTICS 0;
