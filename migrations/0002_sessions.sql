-- Users of accounts, and their sessions.

CREATE SEQUENCE user_ids;

-- Derived from the log, inline.
CREATE TABLE users (
    shard_id   smallint       NOT NULL,
    id         bigint         NOT NULL,
    version    bigint         NOT NULL,
    account_id bigint         NOT NULL,
    role       text           NOT NULL CHECK (role IN ('viewer', 'operator', 'owner')),
    email_hash text           NOT NULL, -- salted; the email is the text user.email in the vault
    is_removed boolean        NOT NULL,
    created_at timestamptz(3) NOT NULL,
    updated_at timestamptz(3) NOT NULL,
    CONSTRAINT users_pkey PRIMARY KEY (id)
);
CREATE INDEX users_account ON users (account_id, id);

-- How a user logs in. A user that is removed has no row, and its email is free again.
CREATE TABLE vault.users (
    user_id       bigint PRIMARY KEY,
    email_lookup  bytea  NOT NULL, -- keyed hash of the email in lower case
    password_hash text   NOT NULL, -- argon2id, as a PHC string
    CONSTRAINT users_email_key UNIQUE (email_lookup)
);

-- A session is what one login began: its access tokens name it, its portal cookie and its refresh
-- tokens belong to it. Not derived from the log.
CREATE TABLE vault.sessions (
    id                bigint         GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id           bigint         NOT NULL,
    portal_hash       bytea          NOT NULL, -- SHA-256 of the cookie's secret (256 random bits)
    portal_expires_at timestamptz(3) NOT NULL,
    expires_at        timestamptz(3) NOT NULL, -- with its last refresh token
    revoked_at        timestamptz(3)
);
CREATE INDEX sessions_user ON vault.sessions (user_id);
CREATE INDEX sessions_expires_at ON vault.sessions (expires_at);

-- Single use. One that comes a second time revokes its session, so used ones are kept until they
-- would have expired.
CREATE TABLE vault.refresh_tokens (
    token_hash bytea          PRIMARY KEY, -- SHA-256 of 256 random bits
    session_id bigint         NOT NULL REFERENCES vault.sessions ON DELETE CASCADE,
    expires_at timestamptz(3) NOT NULL,
    used_at    timestamptz(3)
);
CREATE INDEX refresh_tokens_session ON vault.refresh_tokens (session_id);
CREATE INDEX refresh_tokens_expires_at ON vault.refresh_tokens (expires_at);

GRANT SELECT, INSERT, UPDATE, DELETE ON users, vault.users, vault.sessions, vault.refresh_tokens TO ledger_runtime;
GRANT USAGE ON SEQUENCE user_ids TO ledger_runtime;
