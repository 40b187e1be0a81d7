-- The owner migrates. The service's login can only become ledger_runtime, which may append to the log and read it.
CREATE ROLE ledger_runtime NOLOGIN;
CREATE ROLE ledger_owner LOGIN PASSWORD 'change me' CREATEROLE;
CREATE ROLE ledger_service LOGIN NOINHERIT PASSWORD 'change me';
GRANT ledger_runtime TO ledger_service;
GRANT ledger_runtime TO ledger_owner WITH ADMIN OPTION;
-- Byte order, so that no index depends on the version of libc or ICU on this machine or on a standby.
CREATE DATABASE ledger OWNER ledger_owner TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C';
