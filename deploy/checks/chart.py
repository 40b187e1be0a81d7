"""The Helm chart and the manifests rendered from it: linted by helm, held to the schemas of Kubernetes, and read as a cluster
would read them. No cluster runs here."""

import contextlib
import functools
import http.client
import pathlib
import re
import shutil
import tomllib

import kubernetes_validate
import yaml

import compose
import image
from support import DEPLOY, REPOSITORY, Failed, delivered_order, expect, need, request, run

CHART = DEPLOY / "chart"
VALUES = {name: CHART / "ci" / f"{name}-values.yaml" for name in ("kubernetes", "everything")}
# The oldest release that the chart supports, and the newest whose schemas there are.
RELEASES = ("1.30", kubernetes_validate.latest_version())
# Kinds of the Prometheus operator, whose schemas Kubernetes does not have.
FOREIGN = ("monitoring.coreos.com/v1",)


def rendered(values):
    text = run(need("helm"), "template", "rewards-ledger", CHART, "--values", VALUES[values]).stdout
    return [manifest for manifest in yaml.safe_load_all(text) if manifest]


def linted():
    for values in VALUES.values():
        run(need("helm"), "lint", "--strict", CHART, "--values", values)


def refusals():
    """Without keys, and with a value that does not exist, nothing is rendered."""
    for arguments, problem in (([], "set keys.existingSecret"), (["--set=replica=1"], "replica")):
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
        DEPLOY / "compose.yaml", DEPLOY / "rewards-ledger.service", DEPLOY / "Dockerfile", DEPLOY / "debian/environment",
        *(CHART / "templates").iterdir(), *VALUES.values(), CHART / "values.yaml",
    ]
    for path in files:
        unknown = set(re.findall(r"\b(?:LEDGER|DATABASE)_[A-Z_]+\b", path.read_text())) - known
        expect(not unknown, f"{path.relative_to(DEPLOY)} sets {', '.join(sorted(unknown))}")


def container(buildah, where, template, secrets, sockets):
    """A pod of the chart, with its settings and volumes as the kubelet makes them: root's, and open to the pod's group."""
    spec, group = template["spec"], template["spec"]["securityContext"]["fsGroup"]
    described = spec["containers"][0]
    settings = {}
    for variable in described["env"]:
        reference = variable.get("valueFrom", {}).get("secretKeyRef")
        settings[variable["name"]] = secrets[reference["key"]] if reference else variable["value"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounted = {"/var/run/postgresql": sockets}
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
    return image.Container(buildah, where, mounted, compose.own_addresses(settings))


def probe(template, operators):
    """The probes of a pod of a node that serves all succeed."""
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        wanted = template["spec"]["containers"][0][name]["httpGet"]
        expect(wanted["port"] == "operators", f"{name} asks {wanted['port']}")
        with contextlib.closing(http.client.HTTPConnection(operators, timeout=60)) as connection:
            answer = request(connection, "GET", wanted["path"])
        expect(answer.status == 200, f"{name} returned {answer.status}: {answer.body.decode()}")


def play(buildah, where):
    """From empty volumes to a delivered and verified order, with the pods of deploy/kubernetes."""
    here = where / "chart"
    volumes = {name: here / name for name in ("keys", "migration", "passwords", "database", "socket")}
    for path in volumes.values():
        path.mkdir(parents=True)
    compose.set_up(volumes, "0")
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
            delivered_order(address, operators, secrets["operator.token"])
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
    report("the files set only settings that exist", settings, pathlib.Path(program).resolve())
    report("the manifests in deploy/kubernetes are current", current)
