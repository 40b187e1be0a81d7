-- Run this as a superuser, or as the administrator of a managed Postgres: CREATEROLE and CREATEDB are enough.
-- The owner migrates. The service's login can only become ledger_runtime, which may append to the log and read it.
CREATE ROLE ledger_runtime NOLOGIN;
CREATE ROLE ledger_owner LOGIN PASSWORD 'change me' CREATEROLE;
CREATE ROLE ledger_service LOGIN NOINHERIT PASSWORD 'change me';
GRANT ledger_runtime TO ledger_service;
GRANT ledger_runtime TO ledger_owner WITH ADMIN OPTION;
-- Only a member of a role may create a database for it, unless a superuser does.
GRANT ledger_owner TO CURRENT_USER;
-- Byte order, so that no index depends on the version of libc or ICU on this machine or on a standby.
CREATE DATABASE ledger OWNER ledger_owner TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C';
REVOKE ledger_owner FROM CURRENT_USER;
