-- MACs of rows that open something, in tables beside: nodes of the release before read those rows with *.
CREATE TABLE vault.credential_macs (
    credential_id bigint PRIMARY KEY REFERENCES vault.credentials ON DELETE CASCADE,
    mac           bytea, -- none: from before there were MACs
    secret_mac    bytea  -- of the signing secret
);
CREATE TABLE vault.operator_macs (
    operator_id bigint PRIMARY KEY REFERENCES vault.operators ON DELETE CASCADE,
    mac         bytea  NOT NULL
);
CREATE TABLE vault.user_macs (
    user_id bigint PRIMARY KEY REFERENCES vault.users ON DELETE CASCADE,
    mac     bytea  NOT NULL
);
CREATE TABLE vault.session_macs (
    session_id bigint PRIMARY KEY REFERENCES vault.sessions ON DELETE CASCADE,
    mac        bytea  NOT NULL
);
CREATE TABLE vault.refresh_token_macs (
    token_hash bytea PRIMARY KEY REFERENCES vault.refresh_tokens ON DELETE CASCADE,
    mac        bytea NOT NULL
);
GRANT SELECT, INSERT, UPDATE, DELETE ON vault.credential_macs, vault.operator_macs, vault.user_macs, vault.session_macs,
    vault.refresh_token_macs TO ledger_runtime;
