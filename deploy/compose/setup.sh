#!/usr/bin/env bash
# Creates the keys and passwords of compose.yaml, each once. A second run changes nothing.
# The directories are arguments only for the test of this script.
set -euo pipefail
keys=${1:-/keys} migration=${2:-/migration} passwords=${3:-/passwords} socket=${4:-/var/run/postgresql}
ledger=${LEDGER_UID:-65532} postgres=${POSTGRES_UID:-999}

# Writes a new file from stdin, complete or not at all, readable only for one user.
write() {
    local file=$1 owner=$2
    if [ -e "$file" ]; then
        cat > /dev/null
        return
    fi
    (umask 077; cat > "$file.new")
    chown "$owner:$owner" "$file.new"
    chmod 0400 "$file.new"
    mv "$file.new" "$file"
}
random() { head -c 32 /dev/urandom; }
hex() { random | od -An -v -tx1 | tr -d ' \n'; }
url() { printf 'database_url = "postgres://%s:%s@localhost/ledger?host=%s"\n' "$1" "$(cat "$2")" "$socket"; }

random | base64 | write "$keys/master.key" "$ledger"
random | base64 | write "$keys/log.key" "$ledger"
hex | write "$keys/operator.token" "$ledger"
for role in postgres owner service; do
    hex | write "$passwords/$role.password" "$postgres"
done
url ledger_service "$passwords/service.password" | write "$keys/service.toml" "$ledger"
url ledger_owner "$passwords/owner.password" | write "$migration/owner.toml" "$ledger"
