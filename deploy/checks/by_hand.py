"""The steps of "By hand" in README.md, without systemd: roles and a database on a Postgres, the schema, keys, and two nodes that
share the work."""

import os
import re
import secrets

import compose
import orders
from support import DEPLOY, directory, expect, need, need_root, node, run


def create_keys(where):
    """Creates the keys with the commands of README.md, and the operator token. Returns the token."""
    section = (DEPLOY / "README.md").read_text().split("\n## By hand\n")[1].split("\n## ")[0]
    commands = re.findall(r"`(\(umask 077; openssl rand [^`]+\))`", section)
    expect(len(commands) == 2, f"the section creates keys with {commands}")
    for command in commands:
        run("sh", "-ec", command, cwd=where)
    token = run("openssl", "rand", "-hex", "32").stdout
    (where / "operator.token").write_text(token)
    (where / "operator.token").chmod(0o600)
    return token.strip()


def create_roles(where, sockets, superuser):
    """Runs roles.sql, with passwords, as an administrator that is no superuser. Returns the URL of each login."""
    passwords = {name: secrets.token_hex(16) for name in ("administrator", "ledger_owner", "ledger_service")}

    def psql(user, password, *arguments):
        login = {"PGHOST": str(sockets), "PGDATABASE": "postgres", "PGUSER": user, "PGPASSWORD": password}
        run("psql", "--no-psqlrc", "--set=ON_ERROR_STOP=1", *arguments, env={**os.environ, **login})

    create = f"CREATE ROLE administrator LOGIN CREATEROLE CREATEDB PASSWORD '{passwords['administrator']}'"
    psql("postgres", superuser, f"--command={create}")
    roles, changed = re.subn(
        r"(CREATE ROLE (\w+) .*)'change me'", lambda found: f"{found[1]}'{passwords[found[2]]}'", (DEPLOY / "roles.sql").read_text()
    )
    expect(changed == 2, f"roles.sql has {changed} passwords to change")
    (where / "roles.sql").write_text(roles)
    psql("administrator", passwords["administrator"], f"--file={where / 'roles.sql'}")
    return {name: f"postgres://{name}:{password}@localhost/ledger?host={sockets}" for name, password in passwords.items()}


def serve(program, roles, data, settings):
    """Starts a node with the sample of the configuration file and a data directory of its own."""
    own = {"LEDGER_CONFIG": str(DEPLOY / "rewards-ledger.toml"), "LEDGER_DATA_DIR": str(data)}
    settings = compose.own_addresses({**settings, **own})
    return node([program, "serve", "--roles", roles], settings)


def play(program):
    """From an empty Postgres to the verified webhook of an order. The ledger is sealed on the way."""
    need_root()
    need("psql", "openssl")
    with directory() as where:
        volumes = {name: where / name for name in ("database", "socket", "passwords")}
        for path in volumes.values():
            path.mkdir()
        superuser = secrets.token_hex(16)
        (volumes["passwords"] / "postgres.password").write_text(superuser)
        orders.prepare_receiver(where / "receiver")
        token = create_keys(where)
        # The server of compose.yaml, without its scripts.
        with compose.database({**compose.load()["services"]["postgres"], "volumes": []}, volumes):
            urls = create_roles(where, volumes["socket"], superuser)
            common = {"PATH": os.environ["PATH"], "LEDGER_DATA_DIR": str(where / "data")}
            run(program, "migrate", env={**common, "DATABASE_URL": urls["ledger_owner"]})
            settings = {
                **common,
                **orders.SETTINGS,
                "DATABASE_URL": urls["ledger_service"],
                "LEDGER_MASTER_KEY_FILE": str(where / "master.key"),
                "LEDGER_LOG_KEY_FILE": str(where / "log.key"),
                "LEDGER_OPERATOR_TOKEN_FILE": str(where / "operator.token"),
                "LEDGER_PUBLIC_URL": "https://rewards.example.com",
                "LEDGER_WEBHOOK_CA_FILE": str(where / "receiver/ca.pem"),
                "LEDGER_NODE_LISTEN": "127.0.0.1:8082",
            }
            with serve(program, "api", where / "api", settings) as (address, operators):
                run(program, "keys", "seal", env=settings)
                with open(where / "master.key", "a", encoding="utf-8") as file:
                    file.write("sealed\n")
                with serve(program, "projector,fulfilment,delivery", where / "worker", settings) as (_, workers):
                    orders.delivered_order(address, operators, token, where / "receiver", nodes=(operators, workers))
                    run(program, "verify", env=settings)


def checks(program, report):
    sentence = 'the steps of "By hand" in README.md lead to an order and its verified webhook'
    report(sentence, play, program)
