"""The URLs in the metadata of the package: those of the repository that is built, or none."""

import subprocess
from pathlib import Path

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from hatch_build import project_urls, repository_url
from tests import ROOT

URLS = {
    "Repository": "https://github.com/owner/name",
    "Issues": "https://github.com/owner/name/issues",
    "Documentation": "https://github.com/owner/name/tree/HEAD/docs",
    "Changelog": "https://github.com/owner/name/blob/HEAD/CHANGELOG.md",
}
WORKFLOW = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "owner/name"}


def checkout(folder: Path, origin: str | None = None) -> Path:
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    if origin is not None:
        subprocess.run(["git", "-C", folder, "remote", "add", "origin", origin], check=True)
    return folder


@pytest.mark.parametrize(
    ("remote", "url"),
    [
        ("https://github.com/owner/name", "https://github.com/owner/name"),
        ("https://github.com/owner/name.git/", "https://github.com/owner/name"),
        ("https://user:token@github.com/owner/name.git", "https://github.com/owner/name"),
        ("https://git.example.org:8443/owner/name.git", "https://git.example.org:8443/owner/name"),
        ("git@github.com:owner/name.git", "https://github.com/owner/name"),
        ("github.com:owner/name", "https://github.com/owner/name"),
        ("ssh://git@github.com:22/owner/name.git", "https://github.com/owner/name"),
        ("git://github.com/owner/name.git", "https://github.com/owner/name"),
    ],
)
def test_remotes_have_web_addresses_without_credentials(remote: str, url: str) -> None:
    assert repository_url(remote) == url


@pytest.mark.parametrize(
    "remote",
    [
        *("", "/srv/name.git", "../name", "file:///srv/name.git", "C:\\name", "https://github.com/"),
        *("http://localhost:8080/owner/name", "http://127.0.0.1/owner/name", "http://[::1]/owner/name"),
        *("git@10.0.0.1:owner/name.git", "git@alias:owner/name.git", "https://github.com:port/owner/name"),
    ],
)
def test_remotes_without_a_public_host_have_no_address(remote: str) -> None:
    assert repository_url(remote) is None


def test_the_urls_are_those_of_the_origin_of_the_checkout(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "one", "git@github.com:owner/name.git")
    assert project_urls(folder, {}) == URLS
    assert project_urls(folder, {**WORKFLOW, "GITHUB_REPOSITORY": "other/other"}) == URLS


def test_only_the_repository_is_named_on_hosts_with_unknown_pages(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "one", "https://git.example.org/owner/name.git")
    assert project_urls(folder, {}) == {"Repository": "https://git.example.org/owner/name"}
    server = {"GITHUB_SERVER_URL": "https://git.example.org"}
    assert set(project_urls(folder, server)) == set(URLS)


def test_a_workflow_names_the_repository_that_it_checked_out(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "one", "/srv/name.git")
    assert project_urls(folder, {**WORKFLOW, "GITHUB_WORKSPACE": str(folder)}) == URLS
    # A workflow of another repository installs the package from somewhere else.
    assert project_urls(folder, {**WORKFLOW, "GITHUB_WORKSPACE": str(tmp_path)}) == {}


def test_a_folder_in_the_checkout_of_another_project_has_no_urls(tmp_path: Path) -> None:
    checkout(tmp_path, "https://github.com/other/other")
    inner = tmp_path / "indextables"
    inner.mkdir()
    assert project_urls(inner, {}) == {}


@pytest.mark.parametrize("origin", [None, "https://user:token@github.com/owner/name.git"])
def test_the_metadata_has_the_urls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str | None
) -> None:
    for name in (*WORKFLOW, "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    checkout(tmp_path, origin)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "src"):
        (tmp_path / name).symlink_to(ROOT / name)
    metadata = ProjectMetadata(str(tmp_path), PluginManager())
    assert metadata.core.urls == ({} if origin is None else URLS)
