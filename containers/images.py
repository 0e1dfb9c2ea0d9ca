"""The images that docker-compose.yml names: ours from our Dockerfile, the others from what Debian and PyPI offer.

A base image that is there already is taken as it is. Names no registry: pip and apt are told by this machine.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from containers.stage import ROOT, ContainerHost, run

#: The tag that our Dockerfile builds on. Its Python is Debian's.
BASE = "python:3.13-slim"
IMAGES = Path(__file__).with_name("images")
#: Image -> its Dockerfile. Grafana is in no registry that has packages only.
OTHERS = {"valkey/valkey:8": "valkey.Dockerfile", "prom/prometheus:v3.5.0": "prometheus.Dockerfile"}
#: How this machine reaches its registries: read while an image is built, and not kept in it.
OF_THIS_MACHINE = (Path("/etc/ssl/certs"), Path("/etc/pip.conf"))


def build(stage: ContainerHost) -> None:
    """All of them."""
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
