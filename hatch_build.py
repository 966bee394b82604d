"""Adds the bridge to the wheel, and the project's URLs to the metadata.

The bridge consists of the jars for the versions of Spark and of the Scala sources. `make wheel` compiles all
jars first (scripts/build_bridge.py --all). Other builds, such as `pip install` of a checkout, compile only
the one for the installed PySpark, if there is one; the rest are compiled on first use.

The URLs are those of the repository that is built: of the remote `origin` of the checkout, or of the
repository that GitHub Actions checked out. Without either there are none. A source distribution keeps the
URLs with which it was built.
"""

import importlib.util
import ipaddress
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

# A remote as SSH names it: `user@host:path`.
_SSH = re.compile(r"(?:[^@/:]+@)?(?P<host>[^@/:]+):(?!//)/*(?P<path>.+)")
# Hosts on which the addresses of issues and files are known.
_HOSTS = re.compile(r"https?://(?:[^/]+\.)?(?:github|gitlab)\.")


class BridgeHook(BuildHookInterface[Any]):
    """Runs when hatchling builds a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """List the files of the wheel beyond the Python files."""
        if version == "editable":  # a checkout has its sources, and scripts/build_bridge.py
            return
        root = Path(self.root)
        compiler = _compiler(root)
        folder = root / "bridge"
        included = build_data["force_include"]
        for source in folder.rglob("*.scala"):
            included[str(source)] = f"indextables/spark/scala/{source.relative_to(folder).as_posix()}"
        jars = root / "src" / "indextables" / "spark" / "jars"
        _compile_for_installed(compiler, folder, jars)
        missing = []
        for minor in compiler.MINORS:
            jar = jars / compiler.jar_name(minor)
            if compiler.origin_of(jar) == compiler.origin(minor, compiler.sources_for(folder, minor)):
                included[str(jar)] = f"indextables/spark/jars/{jar.name}"
            else:
                missing.append(minor)
        if missing:
            self.app.display_warning(
                f"the wheel has no bridge for Spark {', '.join(missing)}; it is then compiled on first "
                "use. `make wheel` builds a wheel with all of them"
            )


def _compile_for_installed(compiler: ModuleType, folder: Path, jars: Path) -> None:
    """Compile the bridge for the installed PySpark, if there is one and its jar is not up to date."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return
    version = importlib.import_module("pyspark").__version__
    sources = compiler.sources_for(folder, version)
    target = jars / compiler.jar_name(version)
    if sources and compiler.origin_of(target) != compiler.origin(version, sources):
        compiler.compile_bridge(sources, Path(found.origin).parent, version, target)


def _compiler(root: Path) -> ModuleType:
    """The compiler's module, by its path: the package itself is not installed where it is built."""
    path = root / "src" / "indextables" / "spark" / "compiler.py"
    spec = importlib.util.spec_from_file_location("indextables_compiler", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class UrlsHook(MetadataHookInterface):
    """Runs when hatchling reads the metadata, for editable installs as well."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the URLs of the project; a source distribution that has some keeps them."""
        metadata.setdefault("urls", project_urls(Path(self.root), os.environ))


def project_urls(root: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The URLs of the repository in a folder, by label; none if its address is unknown."""
    server = environment.get("GITHUB_SERVER_URL", "").rstrip("/")
    repository = repository_url(_origin(root))
    # A workflow of another repository may install the package: what counts is what was checked out.
    workspace = environment.get("GITHUB_WORKSPACE", "")
    if repository is None and server and workspace and Path(workspace).resolve() == root.resolve():
        repository = repository_url(f"{server}/{environment.get('GITHUB_REPOSITORY', '')}")
    if repository is None:
        return {}
    urls = {"Repository": repository}
    if _HOSTS.match(repository) or (server and repository.startswith(f"{server}/")):
        urls["Issues"] = f"{repository}/issues"
        urls["Documentation"] = f"{repository}/tree/HEAD/docs"
        urls["Changelog"] = f"{repository}/blob/HEAD/CHANGELOG.md"
    return urls


def repository_url(remote: str) -> str | None:
    """The web address of a git remote; None if it is a local path, or on a host without a public name.

    >>> repository_url("git@github.com:owner/name.git")
    'https://github.com/owner/name'
    """
    if ssh := _SSH.fullmatch(remote):
        remote = f"ssh://{ssh['host']}/{ssh['path']}"
    try:
        parts = urlsplit(remote)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    path = parts.path.strip("/").removesuffix(".git").rstrip("/")
    if parts.scheme not in {"https", "http", "ssh", "git"} or not path or not _is_public(host):
        return None
    if parts.scheme in {"ssh", "git"}:  # their port is not that of the web server
        return f"https://{host}/{path}"
    return f"{parts.scheme}://{host}{'' if port is None else f':{port}'}/{path}"


def _is_public(host: str) -> bool:
    """Whether a host has a name with a domain: an address or an alias on this machine has none."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return re.fullmatch(r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+", host) is not None
    return False


def _origin(root: Path) -> str:
    """The remote `origin` of a checkout; empty if the folder is none. A folder around it does not count."""
    if not (root / ".git").exists():
        return ""
    try:
        git = subprocess.run(  # noqa: S603 -- the only argument is the folder that is built
            ["git", "-C", str(root), "config", "--get", "remote.origin.url"],  # noqa: S607 -- the user's git
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return git.stdout.strip()
