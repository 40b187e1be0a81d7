"""The Dockerfile: linted, built and run without a Docker engine.

Compiling takes many minutes, so the first stage gets a `cargo` that hands out an already compiled program. No registry of images
is needed: both base images consist of packages of Debian, from which stand-ins are made here.
"""

import json
import os
import pathlib
import re

import chart
import compose
from support import DEPLOY, REPOSITORY, Skipped, directory, expect, need, need_mounts, node, run

BASE = "gcr.io/distroless/cc-debian12:nonroot"
COMPILER = "docker.io/library/rust:1.94-bookworm"
# The packages of the base image, and those that the commands of the first stage need.
PACKAGES = (
    "base-files", "ca-certificates", "libc6", "libgcc-s1", "libgomp1", "libssl3", "libstdc++6", "media-types", "netbase", "tzdata"
)
TOOLS = ("coreutils", "dash", "libacl1", "libattr1", "libgmp10", "libpcre2-8-0", "libselinux1")
CARGO = """#!/bin/sh -e
test "$*" = "build --release --locked --bin rewards-ledger"
test -f Cargo.lock && test -f src/main.rs
mkdir -p target/release
cp /program target/release/rewards-ledger
"""
MAX_BYTES = 100_000_000
# The key files of a ledger.
KEYS = ("master.key", "log.key", "operator.token")


class Buildah:
    """buildah with a storage of its own."""

    def __init__(self, where):
        self.command = [need("buildah"), "--storage-driver", "vfs", "--root", where / "storage", "--runroot", where / "run"]
        # Holds the caches of the first stage.
        self.environment = {**os.environ, "TMPDIR": str(where)}
        self.trees = {}

    def __call__(self, *arguments):
        return run(*self.command, *arguments, env=self.environment).stdout.strip()

    def image(self, name, tree):
        """Makes an image of a directory."""
        container = self("from", "scratch")
        self("copy", "--quiet", container, tree, "/")
        self("commit", "--quiet", container, name)

    def tree(self, name):
        """Returns the directory of an image's tree, which containers share, because none writes to it."""
        if name not in self.trees:
            self.trees[name] = pathlib.Path(self("mount", self("from", "--pull-never", name)))
        return self.trees[name]

    def config(self, name):
        return json.loads(self("inspect", "--type", "image", name))["Docker"]["config"]


def linted():
    run(need("hadolint"), "--failure-threshold", "info", DEPLOY / "Dockerfile")


def included():
    """Returns the files that the sources compile in, and those that Cargo looks for."""
    named = {"Cargo.toml", "Cargo.lock"}
    pattern = re.compile(r'include_(?:str|bytes)!\(\s*"([^"]+)"')
    for folder in ("src", "clients", "crates", "events/src", "projections/src"):
        for source in (REPOSITORY / folder).rglob("*.rs"):
            for target in pattern.findall(source.read_text()):
                named.add(os.path.relpath((source.parent / target).resolve(), REPOSITORY))
    return named


def context(buildah):
    """Everything that the build needs is in its context, and nothing that changes without changing the program."""
    file = "FROM scratch\nCOPY . /\n"
    with directory() as where:
        (where / "Dockerfile").write_text(file)
        ignore = ["--ignorefile", REPOSITORY / ".dockerignore"]
        buildah("bud", "--quiet", *ignore, "--file", where / "Dockerfile", "--tag", "context", REPOSITORY)
    tree = buildah.tree("context")
    lost = [path for path in sorted(included()) if not (tree / path).exists()]
    expect(not lost, f".dockerignore hides {', '.join(lost)}")
    run(need("cargo"), "metadata", "--no-deps", "--offline", "--locked", "--format-version=1", cwd=tree)
    expect(not (tree / "tests").exists() and not (tree / ".git").exists(), ".dockerignore lets tests or the history in")


def unpack(names, packages, where):
    """Unpacks packages of Debian. Downloads them at the first time."""
    packages.mkdir(parents=True, exist_ok=True)
    missing = [name for name in names if not list(packages.glob(f"{name}_*.deb"))]
    if missing and run("apt-get", "download", *missing, cwd=packages, check=False).returncode != 0:
        raise Skipped("the packages of the base images cannot be downloaded")
    for name in names:
        run("dpkg-deb", "--extract", max(packages.glob(f"{name}_*.deb")), where)


def base(packages, where):
    """Makes the tree of the base image as its makers do."""
    unpack(PACKAGES, packages, where)
    for unwanted in ("usr/share/doc", "usr/share/man", "usr/share/locale"):
        run("rm", "-rf", where / unwanted)
    authorities = where / "etc/ssl/certs/ca-certificates.crt"
    authorities.parent.mkdir(parents=True, exist_ok=True)
    found = sorted((where / "usr/share/ca-certificates").rglob("*.crt"))
    authorities.write_text("".join(path.read_text() for path in found))
    (where / "etc/passwd").write_text("nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n")


def build(buildah, program, packages, where):
    """Builds the Dockerfile."""
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    for image in (BASE, COMPILER.removeprefix("docker.io/library/")):
        expect(f"FROM {image}" in dockerfile, f"the Dockerfile is not based on {image}")
    base(packages, where / "base")
    buildah.image(BASE, where / "base")
    compiler = where / "compiler"
    unpack(PACKAGES + TOOLS, packages, compiler)
    (compiler / "usr/local/bin").mkdir(parents=True)
    (compiler / "usr/local/bin/cargo").write_text(CARGO)
    (compiler / "usr/local/bin/cargo").chmod(0o755)
    run("strip", "--strip-debug", "-o", compiler / "program", program)
    buildah.image(COMPILER, compiler)
    options = ["--quiet", "--pull-never", "--format", "docker", "--isolation", "chroot"]
    buildah("bud", *options, "--file", DEPLOY / "Dockerfile", "--tag", "rewards-ledger", REPOSITORY)


def configured(buildah):
    config = buildah.config("rewards-ledger")
    expect(re.fullmatch(r"[1-9]\d*:[1-9]\d*", config["User"]), f"the image runs as {config['User']!r}")
    expect(config["Healthcheck"]["Test"][0] == "CMD", "the image has no health check without a shell")
    expect(config["StopSignal"] == "SIGTERM", "SIGTERM does not stop the image")


def size(buildah, program):
    total = int(run("du", "--summarize", "--bytes", buildah.tree("rewards-ledger")).stdout.split()[0])
    if pathlib.Path(program).parent.name != "release":
        raise Skipped(f"{total:,} bytes with a debug build; only a release build counts")
    expect(total < MAX_BYTES, f"the image has {total:,} bytes, more than {MAX_BYTES:,}")


def inside(root, path):
    """Returns where a path of a container is on this machine. Its symbolic links lead to paths of the container."""
    found = root
    for part in pathlib.PurePosixPath(path).parts[1:]:
        found = found / part
        if found.is_symlink():
            found = inside(root, os.path.join("/", found.parent.relative_to(root), os.readlink(found)))
    return found


class Container:
    """Commands of the image, run as an engine would: as its user, without capabilities, on a tree that is read-only except
    for volumes. The network is this machine's."""

    def __init__(self, buildah, where, volumes, settings):
        self.root, config = buildah.tree("rewards-ledger"), buildah.config("rewards-ledger")
        self.user, self.entrypoint, self.health = config["User"], config["Entrypoint"], config["Healthcheck"]["Test"][1:]
        self.environment = dict(setting.split("=", 1) for setting in config["Env"]) | settings
        self.volumes = {"/proc": "/proc", **volumes}
        for path in set(config["Volumes"]) - set(volumes):
            anonymous = where / path.strip("/").replace("/", "-")
            anonymous.mkdir()
            os.chown(anonymous, *map(int, self.user.split(":")))
            self.volumes[path] = anonymous

    def command(self, *arguments):
        mounts = [f"mount --bind {self.root} {self.root}"]
        for path, source in self.volumes.items():
            target = inside(self.root, path)
            target.mkdir(parents=True, exist_ok=True)
            mounts.append(f"mount --bind {source} {target}")
        script = "; ".join([*mounts, f"mount -o remount,bind,ro {self.root}", 'exec "$@"'])
        confined = ["setpriv", "--no-new-privs", "chroot", f"--userspec={self.user}", "--groups=", self.root]
        return ["unshare", "--mount", "sh", "-ec", script, "sh", *confined, *arguments]

    def run(self, *arguments):
        return run(*self.command(*self.entrypoint, *arguments), env=self.environment)

    def start(self, *arguments):
        return node(self.command(*self.entrypoint, *arguments), self.environment)

    def is_healthy(self):
        return run(*self.command(*self.health), env=self.environment, check=False).returncode == 0


def checks(program, report):
    report("hadolint finds nothing in the Dockerfile", linted)
    compose.checks(report)
    need_mounts()
    with directory() as where:
        buildah = Buildah(where)
        packages = pathlib.Path(os.environ["TOOLS"]) / "base-image"
        try:
            report("the image's build has all that it needs", context, buildah)
            build(buildah, program, packages, where)
            report("the image runs as a user that is not root, and checks its health", configured, buildah)
            report("the image is smaller than 100 MB", size, buildah, program)
            sentence = "the services of compose.yaml deliver an order and its webhook, on a read-only tree"
            report(sentence, compose.play, buildah, where, report)
            sentence = "the pods of deploy/kubernetes deliver an order and its webhook, with key files as the kubelet mounts them"
            report(sentence, chart.play, buildah, where)
        finally:
            buildah("umount", "--all")
