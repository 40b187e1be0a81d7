"""The Debian package: built, linted, and installed on a system that really boots, where the systemd unit runs."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tomllib

import orders
from support import DEPLOY, REPOSITORY, Failed, Skipped, directory, expect, need, need_mounts, run

# What runs on the booted system. Each line that it prints is a fact that a check reads.
SCRIPT = r"""
fact() { echo "$1=$2" >> /facts; }
trap 'systemctl exit 1' ERR
set -eE
admin() {
    LEDGER_OPERATOR_TOKEN_FILE=/etc/rewards-ledger/operator.token LEDGER_URL=http://127.0.0.1:8081 rewards-ledger admin "$@"
}
ready() {
    curl --silent --fail --output /dev/null --retry 300 --retry-delay 1 --retry-all-errors "http://127.0.0.1:$1/readyz"
}
property() { systemctl show --property="$1" --value rewards-ledger.service; }

fact verified "$(systemd-analyze verify /lib/systemd/system/rewards-ledger.service 2>&1 | grep rewards-ledger || true)"
ready 8080
ready 8081
fact user "$(ps -o user:32= -p "$(property MainPID)")"
fact postgres "$(ps -o user:32= -C postgres | sort -u | tr -d '\n ')"
fact seccomp "$(awk '/^Seccomp:/ {print $2}' "/proc/$(property MainPID)/status")"
fact capabilities "$(awk '/^CapBnd:/ {print $2}' "/proc/$(property MainPID)/status")"
fact data "$(stat -c '%U %a' /var/lib/rewards-ledger/)"
PYTHONPATH=/ "$PYTHON" -c 'import pathlib, orders
token = pathlib.Path("/etc/rewards-ledger/operator.token").read_text().strip()
orders.delivered_order("127.0.0.1:8080", "127.0.0.1:8081", token, pathlib.Path(orders.MOUNTED), orders.by_hand)'
first=$(property MainPID)
systemctl restart rewards-ledger.service
ready 8081
fact restarted "$([ "$first" != "$(property MainPID)" ] && echo yes)"
fact orders "$(admin order list --json | grep -o DELIVERED | sort -u)"
rewards-ledger verify --data-dir /var/lib/rewards-ledger --master-key-file /etc/rewards-ledger/master.key > /dev/null
systemctl stop rewards-ledger.service
fact stopped "$(property Result) $(property ActiveState)"
systemctl exit 0
"""
UNITS = {
    "check.target": "[Unit]\nRequires=sysinit.target rewards-ledger.service check.service\nAfter=sysinit.target\n",
    "check.service": "[Unit]\nAfter=rewards-ledger.service\n[Service]\nType=oneshot\nExecStart=/bin/bash /check.sh\n"
    "StandardOutput=file:/said\nStandardError=file:/said\n",
}
FILES = (
    "usr/bin/rewards-ledger",
    "lib/systemd/system/rewards-ledger.service",
    "usr/lib/sysusers.d/rewards-ledger.conf",
    "usr/share/bash-completion/completions/rewards-ledger",
    "usr/share/zsh/vendor-completions/_rewards-ledger",
    "usr/share/fish/vendor_completions.d/rewards-ledger.fish",
)
KEYS = {"master.key": ("rand", "-base64", "32"), "log.key": ("rand", "-base64", "32"), "operator.token": ("rand", "-hex", "32")}


def version():
    return tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def build(program, where):
    """Builds the package around an already compiled program. Returns it with the names of its manual pages."""
    cargo_deb, _ = need("cargo-deb", "cargo")
    target = where / "target"
    (target / "release").mkdir(parents=True)
    (target / "release/rewards-ledger").symlink_to(program)
    run(DEPLOY / "debian/generate", target / "release/rewards-ledger", target / "release/package")
    package = where / "rewards-ledger.deb"
    run(
        cargo_deb, "--no-build", "--strip", "--fast", "--offline", "--locked", "--output", package, cwd=REPOSITORY,
        env={**os.environ, "CARGO_TARGET_DIR": str(target)},
    )
    return package, sorted(page.name for page in (target / "release/package/man").iterdir())


def contents(package, pages):
    dpkg = need("dpkg-deb")
    fields = dict(line.split(": ", 1) for line in run(dpkg, "--field", package).stdout.splitlines() if ": " in line)
    expect(fields["Version"].split("-")[0] == version(), f"the package has version {fields['Version']}")
    newest = (DEPLOY / "debian" / "changelog").read_text().split("(")[1].split(")")[0]
    expect(newest == fields["Version"], f"deploy/debian/changelog is about {newest}, not {fields['Version']}")
    expect("libc6" in fields["Depends"], f"the package depends on {fields['Depends']}")
    listed = run(dpkg, "--contents", package).stdout
    expect("rewards-ledger-admin-account-create.1.gz" in pages, f"deploy/debian/generate has written only {pages}")
    for path in (*FILES, *(f"usr/share/man/man1/{page}" for page in pages), *documents()):
        expect(f"/{path}\n" in listed, f"the package lacks {path}")


def documents():
    """Returns where the package has the documents of deploy/, and every sample there to which one of them links."""
    found = list(DEPLOY.glob("*.md"))
    links = {link for document in found for link in re.findall(r"\]\(([^)#:]+)", document.read_text())}
    # A chart, and Compose, need the sources beside them.
    samples = [link for link in links if (DEPLOY / link).is_file() and link.split("/")[0] not in ("..", "chart", "compose", "compose.yaml")]
    samples = [link for link in samples if not link.endswith((".md", ".toml"))]
    expect("ha/patroni.yml" in samples and "nginx.conf" in samples, f"the documents link to {samples}")
    folder = "usr/share/doc/rewards-ledger"
    return [f"{folder}/{path.name}" for path in found] + [f"{folder}/examples/{sample}" for sample in samples]


def linted(package):
    said = run(need("lintian"), "--fail-on", "error", "--tag-display-limit=0", "--allow-root", package, check=False)
    expect(said.returncode == 0, f"lintian: {said.stdout}{said.stderr}")


@contextlib.contextmanager
def system(where):
    """A copy of this machine's system, to which everything that is written is thrown away."""
    need_mounts()
    need("systemd-nspawn", "openssl", "journalctl")
    layers, root = where / "layers", where / "root"
    for path in (layers, root):
        path.mkdir()
    mounts = []
    try:
        for command in (
            ["-t", "tmpfs", "-o", "size=3g", "tmpfs", layers],
            ["-t", "overlay", "-o", f"lowerdir=/,upperdir={layers}/upper,workdir={layers}/work", "overlay", root],
        ):
            for path in (layers / "upper", layers / "work") if mounts else ():
                path.mkdir()
            if run("mount", *command, check=False).returncode != 0:
                raise Skipped("this machine allows no overlay mounts")
            mounts.append(command[-1])
        tried = contained(root, "true", check=False)
        if tried.returncode != 0:
            raise Skipped(f"systemd-nspawn starts nothing here: {tried.stderr.strip()[-300:]}")
        yield root
    finally:
        for mount in reversed(mounts):
            run("umount", "--lazy", mount, check=False)


def contained(root, *command, check=True):
    return run(
        need("systemd-nspawn"), "--quiet", "--register=no", "--keep-unit", "--private-network", "--directory", root, *command,
        check=check, stdin=subprocess.DEVNULL,
    )


def install(package, root):
    shutil.copy(package, root / "package.deb")
    # A data directory or an account of an earlier installation must not decide the outcome.
    contained(root, "dpkg", "--install", "/package.deb")
    passwd = (root / "etc/passwd").read_text()
    expect("\nrewards-ledger:" in passwd, "the package creates no user")
    folder = root / "etc/rewards-ledger"
    modes = [f"{path.stat().st_mode & 0o777:o}" for path in (folder, folder / "environment", folder / "rewards-ledger.toml")]
    expect(modes == ["750", "640", "640"], f"/etc/rewards-ledger and its files have the modes {modes}")
    contained(root, "rewards-ledger", "config", "check", "/etc/rewards-ledger/rewards-ledger.toml")


def boot(root):
    """Boots the system with the service on an embedded Postgres, and returns the facts that the script finds."""
    for name, make in KEYS.items():
        key = root / "etc/rewards-ledger" / name
        key.write_text(run(need("openssl"), *make).stdout)
        key.chmod(0o600)
    (root / "check.sh").write_text(f"PYTHON={os.path.realpath(sys.executable)}\n{SCRIPT}")
    orders.prepare_receiver(root / orders.MOUNTED.lstrip("/"))
    with open(root / "etc/rewards-ledger/environment", "a", encoding="utf-8") as file:
        file.writelines(f"{name}={value}\n" for name, value in orders.SETTINGS.items())
    for module in ("orders.py", "support.py"):
        shutil.copy(DEPLOY / "checks" / module, root)
    for name, unit in UNITS.items():
        (root / "etc/systemd/system" / name).write_text(unit)
    done = contained(root, "--boot", "systemd.unit=check.target", check=False)
    said = (root / "said").read_text() if (root / "said").exists() else done.stdout[-3000:]
    found = (root / "facts").read_text() if (root / "facts").exists() else ""
    facts = dict(line.split("=", 1) for line in found.splitlines())
    if done.returncode != 0:
        journal = run("journalctl", "--root", root, "--unit", "rewards-ledger", "--no-pager", "--lines", "40", check=False).stdout
        raise Failed(f"the script on the booted system failed: {said} {facts} {journal}")
    return facts


def works(root):
    facts = boot(root)
    expected = {
        "verified": "", "user": "rewards-ledger", "postgres": "rewards-ledger", "seccomp": "2", "capabilities": "0" * 16,
        "data": "rewards-ledger 700", "restarted": "yes", "orders": "DELIVERED", "stopped": "success inactive",
    }
    expect(facts == expected, f"{facts} instead of {expected}")


def removed(root):
    contained(root, "dpkg", "--purge", "rewards-ledger")
    left = sorted(path.name for path in (root / "etc/rewards-ledger").iterdir())
    expect(left == sorted(KEYS), f"a purge leaves {left}")
    expect((root / "var/lib/rewards-ledger").exists(), "a purge deletes the database")
    expect(not (root / "usr/bin/rewards-ledger").exists(), "a purge leaves the program")


def checks(program, report):
    with directory() as where:
        package, pages = build(program, where)
        report("the Debian package has what it should", contents, package, pages)
        report("lintian finds no error in the Debian package", linted, package)
        with system(where) as root:
            if not report("the Debian package installs", install, package, root):
                raise Skipped("the package is not installed")
            report("the installed unit, hardened, delivers an order and its webhook from an embedded Postgres", works, root)
            report("a purge of the Debian package keeps keys and data", removed, root)
