"""The Helm chart and the manifests rendered from it: linted by helm, held to the schemas of Kubernetes, and read as a cluster
would read them. No cluster runs here."""

import collections
import contextlib
import functools
import http.client
import os
import pathlib
import re
import shutil
import tomllib
import urllib.parse

import kubernetes_validate
import yaml

import compose
import image
import orders
from support import DEPLOY, REPOSITORY, Failed, directory, expect, need, request, run

CHART = DEPLOY / "chart"
VALUES = {name: CHART / "ci" / f"{name}-values.yaml" for name in ("kubernetes", "everything")}
# The oldest release that the chart supports, and the newest whose schemas there are.
RELEASES = ("1.30", kubernetes_validate.latest_version())
# Kinds of the Prometheus operator, whose schemas Kubernetes does not have.
FOREIGN = ("monitoring.coreos.com/v1",)
# Contents of Secrets that the chart names but never has.
NAMED = {"headers": "authorization=Bearer%20key"}


def rendered(values):
    text = run(need("helm"), "template", "rewards-ledger", CHART, "--values", VALUES[values]).stdout
    return [manifest for manifest in yaml.safe_load_all(text) if manifest]


def linted():
    for values in VALUES.values():
        run(need("helm"), "lint", "--strict", CHART, "--values", values)


def refusals():
    """Without keys, with a certificate of no name, and with a value that does not exist, nothing is rendered."""
    nameless = [f"--values={VALUES['kubernetes']}", "--set=tls.existingSecret=certificate"]
    for arguments, problem in (([], "set keys.existingSecret"), (nameless, "set tls.serverName"), (["--set=replica=1"], "replica")):
        refused = run(need("helm"), "template", CHART, *arguments, check=False)
        expect(refused.returncode != 0 and problem in refused.stderr, f"helm template {arguments} said {refused.stderr}")


def schemas(values):
    for manifest in rendered(values):
        for release in () if manifest["apiVersion"] in FOREIGN else RELEASES:
            try:
                kubernetes_validate.validate(manifest, release, strict=True)
            except kubernetes_validate.ValidationError as error:
                name = f"{manifest['kind']} {manifest['metadata']['name']}"
                raise Failed(f"{name} is not valid in Kubernetes {release}: {error.path} {error.message}") from error


def pods(manifests):
    """Returns the name, the template and the claims of everything that has pods."""
    for manifest in manifests:
        spec = manifest.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            claims = [claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])]
            yield manifest["metadata"]["name"], spec["template"], claims


def confined(values):
    found = list(pods(rendered(values)))
    expect(len(found) == 4, f"there are pods of {[name for name, _, _ in found]}")
    for name, template, claims in found:
        spec = template["spec"]
        security = spec["securityContext"]
        expect(security["runAsNonRoot"] and security["runAsUser"] > 0, f"{name} runs as root")
        expect(security["seccompProfile"]["type"] == "RuntimeDefault", f"{name} has no seccomp profile")
        expect(spec["automountServiceAccountToken"] is False, f"{name} has a token of Kubernetes")
        volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
        for container in spec["containers"]:
            own = container["securityContext"]
            expect(own["readOnlyRootFilesystem"] and not own["allowPrivilegeEscalation"], f"{name} may change its image")
            expect(own["capabilities"] == {"drop": ["ALL"]}, f"{name} has capabilities")
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            expect(mounted == {*volumes, *claims}, f"{name} mounts {mounted} of {[*volumes, *claims]}")
            expect("limits" in container["resources"], f"{name} has no limits")
        for volume in volumes.values():
            mode = volume.get("secret", {}).get("defaultMode")
            expect(mode in (None, 0o440), f"{name} has key files with the mode {mode}, which the program refuses")


def matches(selector, template):
    return selector.items() <= template["metadata"]["labels"].items()


def selectors(values):
    """Services, budgets, scalers and the policy concern the pods that they should."""
    manifests = rendered(values)
    templates = {name.removeprefix("rewards-ledger-"): template for name, template, _ in pods(manifests)}
    chosen = {}
    for manifest in manifests:
        spec, name = manifest.get("spec", {}), f"{manifest['kind']} {manifest['metadata']['name']}"
        selector = {"Service": spec.get("selector"), "PodDisruptionBudget": spec.get("selector", {}).get("matchLabels")}
        selector["NetworkPolicy"] = spec.get("podSelector", {}).get("matchLabels")
        if selector.get(manifest["kind"]):
            found = (each for each, template in templates.items() if matches(selector[manifest["kind"]], template))
            chosen[name] = sorted(found)
        if manifest["kind"] == "HorizontalPodAutoscaler":
            target = spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"]
            expect(target in [(each["kind"], each["metadata"]["name"]) for each in manifests], f"{name} scales nothing")
    expected = {
        "Service rewards-ledger": ["api"],
        "Service rewards-ledger-operators": ["api"],
        "Service rewards-ledger-nodes": ["api", "worker"],
        "PodDisruptionBudget rewards-ledger-api": ["api"],
        "PodDisruptionBudget rewards-ledger-worker": ["worker"],
        "NetworkPolicy rewards-ledger": ["api", "migration", "verification", "worker"],
    }
    expect(chosen == expected, f"{chosen} instead of {expected}")


def complete():
    """With every option, there is every kind, and the rules are those of alerts.yml."""
    manifests = rendered("everything")
    kinds = {manifest["kind"] for manifest in manifests}
    wanted = {"Secret", "HorizontalPodAutoscaler", "Ingress", "ServiceMonitor", "PrometheusRule", "Job", "ServiceAccount"}
    expect(wanted <= kinds, f"there is no {', '.join(sorted(wanted - kinds))}")
    rules = next(manifest["spec"] for manifest in manifests if manifest["kind"] == "PrometheusRule")
    expect(rules == yaml.safe_load((DEPLOY / "alerts.yml").read_text()), "the rules differ from alerts.yml")
    hooked = [manifest for manifest in manifests if manifest["kind"] in ("Job", "Secret")]
    hooks = {manifest["kind"]: int(manifest["metadata"]["annotations"]["helm.sh/hook-weight"]) for manifest in hooked}
    expect(hooks["Secret"] < hooks["Job"], "the migration runs before its secrets exist")


def versions():
    version = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    expect(chart["appVersion"] == version, f"Chart.yaml is about {chart['appVersion']}, not {version}")


def settings(program):
    """Every variable that a file here sets is a setting of the program."""
    help_text = run(program, "serve", "--help").stdout
    known = set(re.findall(r"\[env: ([A-Z_]+)[=\]]", help_text)) | {"LEDGER_URL"}
    expect(len(known) > 40, f"serve --help names only {len(known)} variables")
    files = [
        *(DEPLOY / name for name in ("compose.yaml", "compose/override.yaml", "rewards-ledger.service", "Dockerfile", "debian/environment")),
        *(CHART / "templates").iterdir(), *VALUES.values(), CHART / "values.yaml",
    ]
    for path in files:
        unknown = set(re.findall(r"\b(?:DIRECT_)?(?:LEDGER|DATABASE)_[A-Z_]+\b", path.read_text())) - known
        expect(not unknown, f"{path.relative_to(DEPLOY)} sets {', '.join(sorted(unknown))}")


def pod_address(template):
    """Returns an address for a pod: of IPv6 if its node listens at all of these."""
    listens = [variable.get("value", "") for variable in template["spec"]["containers"][0]["env"]]
    return "fd00::7" if "[::]:8080" in listens else "10.0.0.7"


def environment(template, secrets):
    """Returns the variables of a pod's container as the kubelet sets them, with the Secrets' contents by key."""
    found = {}
    for variable in template["spec"]["containers"][0]["env"]:
        source = variable.get("valueFrom", {})
        reference = source.get("secretKeyRef")
        if "fieldRef" in source:
            found[variable["name"]] = {"status.podIP": pod_address(template)}[source["fieldRef"]["fieldPath"]]
        elif reference is None:
            # A variable names only those before it.
            found[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda name: found.get(name[1], name[0]), variable["value"])
        elif reference["key"] in secrets or not reference.get("optional"):
            found[variable["name"]] = secrets[reference["key"]]
    return found


def volume(template, file):
    """Returns the volume from which a pod's container reads a file."""
    mounted = {mount["mountPath"]: mount["name"] for mount in template["spec"]["containers"][0]["volumeMounts"]}
    name = mounted[str(pathlib.PurePosixPath(file).parent)]
    return next(each for each in template["spec"]["volumes"] if each["name"] == name)


def direct():
    """Every pod of the service's login has the URLs around a pooler and of a standby, if there are any, and the migration neither."""
    manifests = rendered("everything")
    secrets = {key: value for manifest in manifests if manifest["kind"] == "Secret" for key, value in manifest["stringData"].items()}
    secrets |= NAMED
    further = {"DIRECT_DATABASE_URL": "direct-url", "READ_DATABASE_URL": "read-url"}
    without = {key: value for key, value in secrets.items() if key not in further.values()}
    for name, template, _ in pods(manifests):
        urls, own = (environment(template, known) for known in (secrets, without))
        is_migration = urls["DATABASE_URL"] == secrets["owner-url"]
        for variable, key in further.items():
            expected = None if is_migration else secrets[key]
            expect(urls.get(variable) == expected, f"{name} has {urls.get(variable)} as {variable}")
            expect(variable not in own, f"{name} needs {variable}")


def certificate():
    """With a certificate, the nodes' listeners, probes, services and commands speak HTTPS, and without one, HTTP."""
    for values, scheme, port in (("everything", "https", 443), ("kubernetes", "http", 80)):
        manifests = rendered(values)
        nodes = [template for _, template, _ in pods(manifests) if "startupProbe" in template["spec"]["containers"][0]]
        expect(len(nodes) == 2, f"there are {len(nodes)} kinds of nodes")
        for template in nodes:
            described, spec = template["spec"]["containers"][0], template["spec"]
            schemes = {described[probe]["httpGet"]["scheme"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
            expect(schemes == {scheme.upper()}, f"probes of a node with the values '{values}' speak {schemes}")
            variables = environment(template, collections.defaultdict(str))
            host = urllib.parse.urlsplit(variables["LEDGER_URL"])
            expect((host.scheme, host.port) == (scheme, 8081), f"commands in a pod use {variables['LEDGER_URL']}")
            expect(("LEDGER_TLS_CERT" in variables) == (scheme == "https"), f"a node with the values '{values}' speaks another scheme")
            if scheme == "https":
                names = {name: alias["ip"] for alias in spec["hostAliases"] for name in alias["hostnames"]}
                expect(names == {host.hostname: "127.0.0.1"}, f"a pod does not reach itself as {host.hostname}")
                secret = volume(template, variables["LEDGER_TLS_KEY"])["secret"]["secretName"]
                expect(secret == "certificate", f"a node reads its certificate from the Secret {secret}")
        ports = {each["port"] for found in manifests if found["kind"] == "Service" for each in found["spec"]["ports"]}
        expect(ports == {port, 8081}, f"services with the values '{values}' have the ports {ports}")
    monitor = next(found for found in rendered("everything") if found["kind"] == "ServiceMonitor")
    endpoint = monitor["spec"]["endpoints"][0]
    expect(endpoint["scheme"] == "https" and endpoint["tlsConfig"]["serverName"], f"Prometheus scrapes with {endpoint}")


def handovers():
    """Other nodes reach each node at the address of its pod. The policy lets nodes alone reach that port, and lets them send to it."""
    for values in VALUES:
        manifests = rendered(values)
        templates = {name: template for name, template, _ in pods(manifests)}
        nodes = {name for name, template in templates.items() if "startupProbe" in template["spec"]["containers"][0]}
        for name, template in templates.items():
            variables = environment(template, collections.defaultdict(str))
            found = {variable: value for variable, value in variables.items() if variable.startswith("LEDGER_NODE_")}
            pod = pod_address(template)
            everywhere, host = ("[::]", f"[{pod}]") if ":" in pod else ("0.0.0.0", pod)
            expected = {"LEDGER_NODE_LISTEN": f"{everywhere}:8082", "LEDGER_NODE_URL": f"http://{host}:8082"}
            expect(found == (expected if name in nodes else {}), f"{name} with the values '{values}' has {found}")
            ports = {each["name"]: each["containerPort"] for each in template["spec"]["containers"][0].get("ports", [])}
            expect(ports.get("nodes") == (8082 if name in nodes else None), f"{name} has the ports {ports}")
        policy = next(manifest["spec"] for manifest in manifests if manifest["kind"] == "NetworkPolicy")
        for direction, peers in (("ingress", "from"), ("egress", "to")):
            [rule] = [rule for rule in policy[direction] if {"port": 8082, "protocol": "TCP"} in rule.get("ports", [])]
            chosen = {
                name for name, template in templates.items() for peer in rule[peers] if matches(peer["podSelector"]["matchLabels"], template)
            }
            expect(chosen == nodes, f"the policy's {direction} at the nodes' port concerns {chosen}")


def collector():
    """Only nodes have the key of the collector, by reference, and its authority. By default, none has."""
    variables = {"OTEL_EXPORTER_OTLP_HEADERS", "LEDGER_OTLP_CA_FILE"}
    for values in VALUES:
        for name, template, _ in pods(rendered(values)):
            described = template["spec"]["containers"][0]
            is_traced = values == "everything" and "startupProbe" in described
            found = {variable["name"]: variable for variable in described["env"] if variable["name"] in variables}
            expect(set(found) == (variables if is_traced else set()), f"{name} with the values '{values}' has {set(found)}")
            if not is_traced:
                continue
            reference = found["OTEL_EXPORTER_OTLP_HEADERS"]["valueFrom"]["secretKeyRef"]
            expect(reference == {"name": "collector", "key": "headers"}, f"{name} has the collector's key from {reference}")
            file = found["LEDGER_OTLP_CA_FILE"]["value"]
            source = volume(template, file)["configMap"]["name"], pathlib.PurePosixPath(file).name
            expect(source == ("collector-ca", "ca.pem"), f"{name} reads {file} from {source}")


def suppliers():
    """Workers read the file of suppliers and its secrets, and nodes that answer clients those of notices alone. By default, none
    has any."""
    wanted = {"rewards-ledger-worker": "suppliers", "rewards-ledger-api": "supplier-notices"}
    for values in VALUES:
        for name, template, _ in pods(rendered(values)):
            file = environment(template, collections.defaultdict(str)).get("LEDGER_SUPPLIERS_FILE")
            found = file and (volume(template, file)["secret"]["secretName"], pathlib.PurePosixPath(file).name)
            secret = wanted.get(name) if values == "everything" else None
            expected = secret and (secret, "suppliers.toml")
            expect(found == expected, f"{name} with the values '{values}' reads {found} as the file of suppliers")


def described_suppliers(where):
    """Writes the file of suppliers that docs/suppliers.md shows, with a secret, and returns its path."""
    text = re.search(r"^```toml\n(.*?)^```$", (REPOSITORY / "docs/suppliers.md").read_text(), re.MULTILINE | re.DOTALL)[1]
    file, secret = where / "suppliers.toml", where / tomllib.loads(text)["supplier"][0]["client_secret_file"]
    file.write_text(text)
    secret.write_text("secret")
    secret.chmod(0o400)
    return file


def accepted(program):
    """The program accepts the variables of each pod, and those that the samples for Compose and Debian suggest, together."""
    url = "postgres://ledger_service@localhost/ledger"
    examples = {"service-url": url, "direct-url": url, "read-url": url, "owner-url": url, **NAMED}
    found = {}
    for values in VALUES:
        manifests = rendered(values)
        own = {key: value for each in manifests if each["kind"] == "Secret" for key, value in each["stringData"].items()}
        for name, template, _ in pods(manifests):
            found[f"{name} with the values '{values}'"] = environment(template, {**examples, **own})
    lines = re.findall(r"^#([A-Z_]+)=(.*)$", (DEPLOY / "debian/environment").read_text(), re.MULTILINE)
    expect("DIRECT_DATABASE_URL" in dict(lines), f"the file `environment` suggests {lines}")
    found["the file `environment`"] = dict(lines)
    for name, variables in compose.overridden().items():
        suggested = {key: value for key, value in variables.items() if key != "LEDGER_CONFIG"}
        found[f"the service {name} with compose/override.yaml"] = suggested
    for variable in ("DIRECT_DATABASE_URL", "LEDGER_SUPPLIERS_FILE"):
        expect(variable in compose.overridden()["api"], f"compose/override.yaml suggests no {variable}")
    with directory() as where:
        empty = where / "empty.toml"
        empty.touch()
        file = described_suppliers(where)
        for name, variables in found.items():
            # The program reads this file, which is elsewhere in a pod.
            if "LEDGER_SUPPLIERS_FILE" in variables:
                variables["LEDGER_SUPPLIERS_FILE"] = str(file)
            checked = run(program, "config", "check", empty, env={"PATH": os.environ["PATH"], **variables}, check=False)
            expect(checked.returncode == 0, f"{name}: {checked.stdout}{checked.stderr}")


def container(buildah, where, template, secrets, sockets):
    """A pod of the chart, with its settings and volumes as the kubelet makes them: root's, and open to the pod's group. It
    also has the receiver of webhooks."""
    spec, group = template["spec"], template["spec"]["securityContext"]["fsGroup"]
    described, settings = spec["containers"][0], environment(template, secrets)
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounted = {"/var/run/postgresql": sockets, orders.MOUNTED: where / "receiver"}
    for mount in described["volumeMounts"]:
        folder = where / template["metadata"]["labels"]["app.kubernetes.io/component"] / mount["name"]
        folder.mkdir(parents=True)
        secret = volumes.get(mount["name"], {}).get("secret")
        for key in image.KEYS if secret else ():
            (folder / key).write_text(secrets[key])
            (folder / key).chmod(secret["defaultMode"])
            shutil.chown(folder / key, 0, group)
        shutil.chown(folder, 0, group)
        folder.chmod(0o2775)
        mounted[mount["mountPath"]] = folder
    return image.Container(buildah, where, mounted, compose.own_addresses(settings) | orders.SETTINGS)


def probe(template, operators):
    """The probes of a pod of a node that serves all succeed."""
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        wanted = template["spec"]["containers"][0][name]["httpGet"]
        expect(wanted["port"] == "operators", f"{name} asks {wanted['port']}")
        with contextlib.closing(http.client.HTTPConnection(operators, timeout=60)) as connection:
            answer = request(connection, "GET", wanted["path"])
        expect(answer.status == 200, f"{name} returned {answer.status}: {answer.body.decode()}")


def play(buildah, where):
    """From empty volumes to the verified webhook of an order, with the pods of deploy/kubernetes."""
    here = where / "chart"
    volumes = {name: here / name for name in ("keys", "migration", "passwords", "database", "socket")}
    for path in volumes.values():
        path.mkdir(parents=True)
    compose.set_up(volumes, "0")
    orders.prepare_receiver(here / "receiver")
    secrets = {key: (volumes["keys"] / key).read_text() for key in image.KEYS}
    for key, file in (("service-url", "keys/service.toml"), ("owner-url", "migration/owner.toml")):
        secrets[key] = tomllib.loads((here / file).read_text())["database_url"]
    files = (DEPLOY / "kubernetes").glob("*.yaml")
    manifests = [manifest for file in files for manifest in yaml.safe_load_all(file.read_text()) if manifest]
    templates = {name.removeprefix("rewards-ledger-"): template for name, template, _ in pods(manifests)}
    make = functools.partial(container, buildah, here, secrets=secrets, sockets=volumes["socket"])
    arguments = {name: template["spec"]["containers"][0]["args"] for name, template in templates.items()}
    with compose.database(compose.load()["services"]["postgres"], volumes):
        make(templates["migration"]).run(*arguments["migration"])
        api, worker = make(templates["api"]), make(templates["worker"])
        with api.start(*arguments["api"]) as (address, operators), worker.start(*arguments["worker"]) as (_, workers):
            probe(templates["api"], operators)
            probe(templates["worker"], workers)
            orders.delivered_order(address, operators, secrets["operator.token"], here / "receiver", nodes=(operators, workers))
            make(templates["verification"]).run(*arguments["verification"])


def current():
    run(DEPLOY / "kubernetes/render", "--check", env={"HELM": need("helm"), "PATH": "/usr/bin:/bin"})


def checks(program, report):
    report("helm lints the chart", linted)
    report("the chart refuses missing keys and unknown values", refusals)
    for values in VALUES:
        report(f"manifests with the values '{values}' are valid in Kubernetes {' and '.join(RELEASES)}", schemas, values)
        report(f"pods with the values '{values}' are confined", confined, values)
        report(f"selectors with the values '{values}' choose the right pods", selectors, values)
    report("the chart has every kind of object", complete)
    report("the chart is of the program's version", versions)
    report("nodes behind a pooler know the direct URL", direct)
    report("nodes with a certificate speak HTTPS, and those without one HTTP", certificate)
    report("nodes hand commands to each other, and nothing else reaches their port", handovers)
    report("nodes have the key of the collector and its authority", collector)
    report("nodes have the file of suppliers with its secrets, and those of the API only the secrets of notices", suppliers)
    report("the files set only settings that exist", settings, pathlib.Path(program).resolve())
    report("the program accepts the settings of each pod, and those that samples suggest", accepted, pathlib.Path(program).resolve())
    report("the manifests in deploy/kubernetes are current", current)
