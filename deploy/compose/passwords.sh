#!/usr/bin/env bash
# Replaces the passwords in roles.sql by those that setup.sh created, when the database's volume is initialised.
set -euo pipefail
passwords=${PASSWORDS:-/passwords}
for role in owner service; do
    # By stdin, so that no list of processes shows the password.
    printf "ALTER ROLE ledger_%s PASSWORD '%s';\n" "$role" "$(cat "$passwords/$role.password")"
done | psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname "${POSTGRES_DB:-postgres}"
