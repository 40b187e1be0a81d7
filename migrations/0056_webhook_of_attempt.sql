-- Webhook that an attempt was made for, so that the attempts of one webhook are listed by time. It never changes, so an index on
-- it costs an entry for each attempt, and recording a result costs no more. Attempts before this migration have none, and so have
-- those of nodes of the last release: the list of a webhook leaves them out.
ALTER TABLE delivery_attempts ADD COLUMN webhook_id bigint;
