"""compose.yaml: parsed by its specification, and played without an engine, with the services' own settings."""

import contextlib
import functools
import os
import pathlib
import signal
import subprocess

import compose_spec
import yaml

import image
import orders
import prometheus
from support import AS_NOBODY, DEPLOY, NOBODY, Failed, Skipped, expect, free_port, run, stopped_at_the_end, wait_for


def load(name="compose.yaml"):
    """Returns compose.yaml, or another file, with its anchors and merges resolved."""
    return yaml.safe_load((DEPLOY / name).read_text())


def overridden():
    """Returns the variables of each service that compose/override.yaml changes, as Compose merges the two files."""
    own, changes = (load(name)["services"] for name in ("compose.yaml", "compose/override.yaml"))
    return {name: own[name]["environment"] | service["environment"] for name, service in changes.items()}


def specified():
    """A parser that knows the specification reads the files, and rejects keys that do not exist."""
    compose_spec.PyCompose.from_yaml(yaml.safe_dump(load("compose/override.yaml")))
    resolved = yaml.safe_dump(load())
    compose_spec.PyCompose.from_yaml(resolved).validate()
    try:
        compose_spec.PyCompose.from_yaml(resolved.replace("read_only:", "readonly:"))
    except ValueError:
        return
    raise Failed("the parser accepts a key that does not exist")


def references():
    """Mounted files exist, named volumes are declared, and images have a fixed version."""
    described = load()
    for name, service in described["services"].items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            known = (DEPLOY / source).is_file() if source.startswith(".") else source in described["volumes"]
            expect(known, f"{name} mounts {source}, which does not exist")
        built = "build" in service
        expect(built or service["image"].count(":") == 1, f"{name} has the image {service['image']}, without a version")
        for port in service.get("ports", []):
            expect(port.startswith("127.0.0.1:"), f"{name} publishes {port} to the network")


def mounted():
    """Every file that a setting names, also in compose/override.yaml, is in a volume of its service."""
    own, changes = (load(name)["services"] for name in ("compose.yaml", "compose/override.yaml"))
    for name, variables in overridden().items():
        volumes = [volume.split(":")[1] for service in (own[name], changes[name]) for volume in service.get("volumes", [])]
        for variable, value in variables.items():
            known = not value.startswith("/") or str(pathlib.PurePosixPath(value).parent) in volumes
            expect(known, f"{name} has {value} as {variable}, and mounts only {volumes}")


def set_up(volumes, ledger):
    """Runs the script of the service `setup` twice. The second time changes nothing."""
    names = ("keys", "migration", "passwords")
    environment = {**os.environ, "LEDGER_UID": ledger, "POSTGRES_UID": str(NOBODY.pw_uid)}
    seen = []
    for _ in range(2):
        run("bash", DEPLOY / "compose/setup.sh", *(volumes[name] for name in names), env=environment)
        files = sorted(path for name in names for path in volumes[name].iterdir())
        seen.append({path: (path.read_bytes(), path.stat().st_mode & 0o777) for path in files})
    expect(seen[0] == seen[1], "a second run of setup.sh changes keys")
    expect({mode for _, mode in seen[0].values()} == {0o400}, "setup.sh leaves files open to others")
    secrets = [content for path, (content, _) in seen[0].items() if path.suffix != ".toml"]
    expect(len(set(secrets)) == len(secrets) == 6, "setup.sh makes the same secret twice")


@contextlib.contextmanager
def database(service, volumes):
    """Initialises and starts the service `postgres` as its image does, with this machine's server programs."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        raise Skipped("Postgres is not installed")
    programs, data, sockets = found[-1].parent, volumes["database"] / "data", volumes["socket"]
    for name in ("database", "socket"):
        os.chown(volumes[name], NOBODY.pw_uid, NOBODY.pw_gid)
    password = volumes["passwords"] / "postgres.password"
    options = service["environment"]["POSTGRES_INITDB_ARGS"].split()
    run(*AS_NOBODY, programs / "initdb", "--username=postgres", f"--pwfile={password}", *options, data)
    server = [*AS_NOBODY, programs / "postgres", *service["command"][1:], "-D", data, "-c", f"unix_socket_directories={sockets}"]
    with open(volumes["database"].parent / "postgres.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen([str(part) for part in server], stdout=log, stderr=log)
    with stopped_at_the_end(process):
        login = {"PGHOST": str(sockets), "PGPASSWORD": password.read_text()}
        client = {**os.environ, **login, "PASSWORDS": str(volumes["passwords"])}
        ask = functools.partial(run, "psql", "--no-psqlrc", "--username=postgres", "--set=ON_ERROR_STOP=1", env=client)
        wait_for(lambda: ask("--command=").returncode == 0, "Postgres", 60)
        scripts = [volume.split(":")[:2] for volume in service["volumes"] if "/docker-entrypoint-initdb.d/" in volume]
        for source, _ in sorted(scripts, key=lambda script: script[1]):
            ask(f"--file={DEPLOY / source}") if source.endswith(".sql") else run(DEPLOY / source, env=client)
        try:
            yield
        finally:
            # Ends at once, with clients still connected.
            process.send_signal(signal.SIGINT)


def own_addresses(settings):
    """Returns the settings with free addresses, because all containers share one network here."""
    listen, operators, nodes = (f"127.0.0.1:{free_port()}" for _ in range(3))
    settings = {**settings, "LEDGER_LISTEN": listen, "LEDGER_OPERATOR_LISTEN": operators}
    if "LEDGER_NODE_LISTEN" in settings:
        settings |= {"LEDGER_NODE_LISTEN": nodes, "LEDGER_NODE_URL": f"http://{nodes}"}
    return settings | ({"LEDGER_URL": f"http://{operators}"} if "LEDGER_URL" in settings else {})


def handovers():
    """Other nodes reach each node by the name of its service, at the port at which it listens, which the machine does not publish."""
    found = {name: service for name, service in load()["services"].items() if "LEDGER_ROLES" in service.get("environment", {})}
    expect(len(found) == 2, f"there are the nodes {list(found)}")
    for name, service in found.items():
        listens, url = (service["environment"][variable] for variable in ("LEDGER_NODE_LISTEN", "LEDGER_NODE_URL"))
        port = listens.rpartition(":")[2]
        expect(url == f"http://{name}:{port}", f"{name} listens to nodes at {listens}, and names {url}")
        expect(not any(each.endswith(f":{port}") for each in service.get("ports", [])), f"{name} publishes the port of nodes")


def container(buildah, where, name, service, volumes):
    """A service of our image, with its settings and volumes, and the receiver of webhooks."""
    here = where / name
    here.mkdir()
    settings = own_addresses(service["environment"]) | orders.SETTINGS
    mounted = {path: volumes[source] for source, path in (volume.split(":")[:2] for volume in service["volumes"])}
    return image.Container(buildah, here, mounted | {orders.MOUNTED: where / "receiver"}, settings)


def play(buildah, where, report):
    """From empty volumes to the verified webhook of an order, through the services setup, postgres, migrate, api and worker.
    Prometheus then scrapes the nodes."""
    described = load()
    services, volumes = described["services"], {name: where / "volumes" / name for name in described["volumes"]}
    for path in volumes.values():
        path.mkdir(parents=True)
    ledger = buildah.config("rewards-ledger")["User"].split(":")[0]
    os.chown(volumes["state"], int(ledger), int(ledger))
    set_up(volumes, ledger)
    orders.prepare_receiver(where / "receiver")
    make = functools.partial(container, buildah, where)
    with database(services["postgres"], volumes):
        make("migrate", services["migrate"], volumes).run(*services["migrate"]["command"])
        api, worker = (make(name, services[name], volumes) for name in ("api", "worker"))
        with api.start("serve") as (address, operators), worker.start("serve") as (_, workers):
            expect(api.is_healthy() and worker.is_healthy(), "the health check fails on a node that serves")
            token = (volumes["keys"] / "operator.token").read_text()
            orders.delivered_order(address, operators, token, where / "receiver", nodes=(operators, workers))
            api.run("verify")
            sentence, nodes = "Prometheus scrapes the nodes, and has the rules", {"api": operators, "worker": workers}
            report(sentence, prometheus.play, services, nodes, where / "prometheus")
        expect(not api.is_healthy(), "the health check passes on a node that has stopped")


def checks(report):
    report("compose.yaml and compose/override.yaml follow their specification", specified)
    report("compose.yaml names only files, volumes and versions that exist", references)
    report("the services of compose.yaml and compose/override.yaml mount the files that their settings name", mounted)
    report("the nodes of compose.yaml hand commands to each other", handovers)
