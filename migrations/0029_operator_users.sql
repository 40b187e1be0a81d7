-- Users of operators: people who sign in to the console with a password or through OpenID Connect. Their ids and those of
-- tokens come from one sequence, because an event names its actor by this id.
CREATE TABLE vault.operator_users (
    id             bigint         PRIMARY KEY,
    role           text           NOT NULL CHECK (role IN ('admin', 'finance', 'auditor')),
    email_lookup   bytea,                  -- keyed hash of the email in lower case; none without a password, and after removal
    password_hash  text,                   -- argon2id, as a PHC string; none for a user of the identity provider
    subject_lookup bytea,                  -- keyed hash of issuer and subject; none for a user with a password
    totp_hash      text,                   -- salted hash of the two-factor secret, as in the log; none without two-factor
    totp_step      bigint,                 -- time step of the last code that was accepted
    mac            bytea          NOT NULL,
    created_at     timestamptz(3) NOT NULL,
    removed_at     timestamptz(3),
    CONSTRAINT operator_users_email_key UNIQUE (email_lookup),
    CONSTRAINT operator_users_subject_key UNIQUE (subject_lookup)
);

-- Each code is deleted when it is used.
CREATE TABLE vault.operator_recovery_codes (
    operator_id bigint NOT NULL REFERENCES vault.operator_users ON DELETE CASCADE,
    code_hash   bytea  NOT NULL, -- keyed hash
    mac         bytea  NOT NULL,
    CONSTRAINT operator_recovery_codes_pkey PRIMARY KEY (operator_id, code_hash)
);

-- Networks from which an operator's user has signed in before, as vault.login_sources has those of users.
CREATE TABLE vault.operator_login_sources (
    operator_id  bigint         NOT NULL REFERENCES vault.operator_users ON DELETE CASCADE,
    source_hash  bytea          NOT NULL, -- keyed hash of the user and the network
    succeeded_at timestamptz(3) NOT NULL,
    CONSTRAINT operator_login_sources_pkey PRIMARY KEY (operator_id, source_hash)
);
CREATE INDEX operator_login_sources_succeeded_at ON vault.operator_login_sources (succeeded_at);

-- Sessions of the console. A row is deleted when its session ends. Not derived from the log.
CREATE SEQUENCE vault.console_session_ids;
CREATE TABLE vault.console_sessions (
    id          bigint         PRIMARY KEY, -- drawn before the row is written, because the MAC covers it
    operator_id bigint         NOT NULL REFERENCES vault.operator_users ON DELETE CASCADE,
    secret_hash bytea          NOT NULL, -- SHA-256 of the cookie's secret (256 random bits)
    expires_at  timestamptz(3) NOT NULL,
    enrolment   bytea,                   -- sealed two-factor secret that is not confirmed yet
    mac         bytea          NOT NULL
);
CREATE INDEX console_sessions_operator ON vault.console_sessions (operator_id);
CREATE INDEX console_sessions_expires_at ON vault.console_sessions (expires_at);

GRANT SELECT, INSERT, UPDATE, DELETE ON vault.operator_users, vault.operator_recovery_codes, vault.operator_login_sources,
    vault.console_sessions TO ledger_runtime;
GRANT USAGE ON SEQUENCE vault.console_session_ids TO ledger_runtime;
