-- Two-factor authentication, one-time tokens, the details of sessions, and mails that wait to be sent. Only what an event
-- says (UserTwoFactorEnabled, SecurityPolicyChanged, UserInvited) can be compared with the log.

-- Second factor of a user.
CREATE TABLE vault.two_factor (
    user_id    bigint  PRIMARY KEY REFERENCES vault.users ON DELETE CASCADE,
    sealed     bytea   NOT NULL, -- secret of the codes, in base32
    is_enabled boolean NOT NULL, -- false: an enrolment that is not confirmed
    last_step  bigint,           -- step of the last accepted code; this and earlier ones are refused
    mac        bytea   NOT NULL
);
-- Unused recovery codes. Using one deletes it.
CREATE TABLE vault.recovery_codes (
    user_id   bigint NOT NULL REFERENCES vault.two_factor ON DELETE CASCADE,
    code_hash bytea  NOT NULL, -- keyed hash of user and code
    CONSTRAINT recovery_codes_pkey PRIMARY KEY (user_id, code_hash)
);

-- Rules for the logins of an account's users. An account without a row has none.
CREATE TABLE vault.account_security (
    account_id             bigint  PRIMARY KEY,
    owners_need_two_factor boolean NOT NULL
);

-- A token that sets a new password, once. A request for an unknown email makes a row without a user, so that it takes the
-- same work.
CREATE TABLE vault.password_resets (
    token_hash bytea          PRIMARY KEY, -- SHA-256 of 256 random bits
    user_id    bigint         REFERENCES vault.users ON DELETE CASCADE,
    expires_at timestamptz(3) NOT NULL,
    mac        bytea          NOT NULL
);
CREATE INDEX password_resets_user ON vault.password_resets (user_id);
CREATE INDEX password_resets_expires_at ON vault.password_resets (expires_at);

-- Invitations that nobody has accepted. They end with the user who made them.
CREATE TABLE vault.invitations (
    id         bigint           PRIMARY KEY, -- random
    account_id bigint           NOT NULL,
    role       text COLLATE "C" NOT NULL,
    sealed     bytea            NOT NULL, -- email address
    token_hash bytea            NOT NULL, -- SHA-256 of 256 random bits
    invited_by bigint           NOT NULL REFERENCES vault.users ON DELETE CASCADE,
    created_at timestamptz(3)   NOT NULL,
    expires_at timestamptz(3)   NOT NULL,
    mac        bytea            NOT NULL,
    CONSTRAINT invitations_token_key UNIQUE (token_hash)
);
CREATE INDEX invitations_account ON vault.invitations (account_id);
CREATE INDEX invitations_invited_by ON vault.invitations (invited_by);
CREATE INDEX invitations_expires_at ON vault.invitations (expires_at);

-- Start and client of a session, shown to its user.
CREATE TABLE vault.session_details (
    session_id bigint         PRIMARY KEY REFERENCES vault.sessions ON DELETE CASCADE,
    started_at timestamptz(3) NOT NULL,
    sealed     bytea          NOT NULL -- network and user agent
);

-- Mails that wait to be sent; in a sandbox also those that were sent. The address is read when a mail is sent: that of the
-- user, or that of the invitation. A mail to neither is dropped.
CREATE TABLE vault.mails (
    id            bigint         PRIMARY KEY, -- random
    user_id       bigint         REFERENCES vault.users ON DELETE CASCADE,
    invitation_id bigint         REFERENCES vault.invitations ON DELETE CASCADE,
    sealed        bytea          NOT NULL,
    attempts      smallint       NOT NULL DEFAULT 0,
    due_at        timestamptz(3) NOT NULL, -- next attempt; while a node sends the mail, the end of its lease
    expires_at    timestamptz(3) NOT NULL, -- the mail is of no use afterwards
    sent_at       timestamptz(3)
);
CREATE INDEX mails_due_at ON vault.mails (due_at) WHERE sent_at IS NULL;
CREATE INDEX mails_user ON vault.mails (user_id);
CREATE INDEX mails_invitation ON vault.mails (invitation_id);
CREATE INDEX mails_expires_at ON vault.mails (expires_at);

GRANT SELECT, INSERT, UPDATE, DELETE ON vault.two_factor, vault.recovery_codes, vault.account_security, vault.password_resets,
    vault.invitations, vault.session_details, vault.mails TO ledger_runtime;
