"""The service `prometheus` of compose.yaml, played by this machine's Prometheus beside real nodes."""

import contextlib
import http.client
import os
import re
import shutil
import subprocess
import urllib.parse

import yaml

import alerts
from support import AS_NOBODY, DEPLOY, NOBODY, expect, free_port, need, request, stopped_at_the_end, wait_for

CONFIGURATION = "etc/prometheus/prometheus.yml"
# What the image's own command sets.
ARGUMENTS = {"config.file": CONFIGURATION, "storage.tsdb.path": "prometheus"}


def with_addresses(configuration, services, nodes):
    """Replaces the names of services, which only Docker's name server knows, by the addresses of their nodes here."""
    described = yaml.safe_load(configuration)
    [job] = described["scrape_configs"]
    [names] = job.pop("dns_sd_configs")
    for name in names["names"]:
        listens = services[name]["environment"]["LEDGER_OPERATOR_LISTEN"]
        expect(listens == f"0.0.0.0:{names['port']}", f"{name} listens at {listens}, and is asked at the port {names['port']}")
    job["static_configs"] = [{"targets": [nodes[name] for name in names["names"]]}]
    return yaml.safe_dump(described)


def install(service, services, nodes, where):
    """Makes the tree of the container: files and volumes where compose.yaml mounts them."""
    for volume in service["volumes"]:
        source, path = volume.split(":")[:2]
        target = where / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.startswith("."):
            shutil.copy(DEPLOY / source, target)
        else:
            target.mkdir()
            os.chown(target, NOBODY.pw_uid, NOBODY.pw_gid)
    configuration = where / CONFIGURATION
    configuration.write_text(with_addresses(configuration.read_text(), services, nodes))


def ask(address, path, **parameters):
    with contextlib.closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        answer = request(connection, "GET", f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
    expect(answer.status == 200, f"Prometheus answered {path} {parameters} with {answer.status}: {answer.body.decode()}")
    return answer.json()["data"]


def scraped(address, nodes):
    targets = ask(address, "targets", state="active")["activeTargets"]
    found = {target["scrapeUrl"]: (target["health"], target["lastError"]) for target in targets}
    expect(found == {f"http://{node}/metrics": ("up", "") for node in nodes.values()}, f"the targets are {found}")
    return True


def ruled(address):
    rules = [rule for group in ask(address, "rules")["groups"] for rule in group["rules"]]
    found = {rule["name"]: (rule["health"], rule.get("lastError")) for rule in rules}
    expect(found == {rule["alert"]: ("ok", None) for rule in alerts.rules()}, f"the rules are {found}")
    return True


def asked(address):
    """Evaluates every query of the dashboard. tests/api/metrics.rs checks that the ledger's own metrics exist."""
    names = set(ask(address, "label/__name__/values"))
    for query in alerts.queries():
        ask(address, "query", query=query)
        lost = set(re.findall(r"\bprocess_\w+", query)) - names
        expect(not lost, f"the dashboard shows {lost}, which no node has")


def play(services, nodes, where):
    """Finds the nodes up, evaluates the rules without an error, and answers the queries of the dashboard."""
    program, service, address = need("prometheus"), services["prometheus"], f"127.0.0.1:{free_port()}"
    install(service, services, nodes, where)
    arguments = [f"--{name}={where / path}" for name, path in ARGUMENTS.items()]
    with open(where / "log", "w", encoding="utf-8") as log:
        command = [*AS_NOBODY, program, *arguments, f"--web.listen-address={address}"]
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=where)
    with stopped_at_the_end(process):
        wait_for(lambda: scraped(address, nodes), "Prometheus to scrape the nodes", 90)
        wait_for(lambda: ruled(address), "Prometheus to evaluate the rules", 90)
        asked(address)
