-- Networks from which a user has logged in before. Failed logins of a user are counted for each of them apart, and for all
-- others together: so nobody elsewhere can use up what the user has at home. Not derived from the log.
CREATE TABLE vault.login_sources (
    user_id      bigint         NOT NULL REFERENCES vault.users ON DELETE CASCADE,
    source_hash  bytea          NOT NULL, -- keyed hash of the user and the network
    succeeded_at timestamptz(3) NOT NULL,
    CONSTRAINT login_sources_pkey PRIMARY KEY (user_id, source_hash)
);
CREATE INDEX login_sources_succeeded_at ON vault.login_sources (succeeded_at);

GRANT SELECT, INSERT, UPDATE, DELETE ON vault.login_sources TO ledger_runtime;
