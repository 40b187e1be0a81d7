-- The master keys that values are sealed under, by the id that each sealed value names.
CREATE TABLE vault.master_keys (
    key_id      bytea          PRIMARY KEY CHECK (length(key_id) = 4),
    check_value bytea          NOT NULL, -- opens under the key alone: the keys that survive a rotation
    state       text           NOT NULL CHECK (state IN ('current', 'old', 'retired')),
    created_at  timestamptz(3) NOT NULL DEFAULT clock_timestamp()
);
-- One is current: of two nodes with different keys the second is refused.
CREATE UNIQUE INDEX master_keys_current ON vault.master_keys (state) WHERE state = 'current';
GRANT SELECT, INSERT, UPDATE ON vault.master_keys TO ledger_runtime;
