-- Old idempotency keys are found by walking over the table: their ages are no order of it once places are taken again.
DROP INDEX idempotency_keys_age;
