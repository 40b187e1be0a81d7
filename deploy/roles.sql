-- The owner migrates; the service's login may only become ledger_runtime, which may add to the log and read it.
CREATE ROLE ledger_runtime NOLOGIN;
CREATE ROLE ledger_owner LOGIN PASSWORD 'change me' CREATEROLE;
CREATE ROLE ledger_service LOGIN NOINHERIT PASSWORD 'change me';
GRANT ledger_runtime TO ledger_service;
GRANT ledger_runtime TO ledger_owner WITH ADMIN OPTION;
CREATE DATABASE ledger OWNER ledger_owner;
