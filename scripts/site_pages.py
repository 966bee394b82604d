"""Hooks of `mkdocs build`: pages that are not files of docs/, and the links between both.

The pages of the top folder (README, PROTOCOL, CONTRIBUTING, CHANGELOG, SECURITY) join the site beside those
of docs/; README becomes its first page. The API reference is generated: `api.md` names the public objects,
and mkdocstrings fills in their docstrings.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
TOP_PAGES = {
    "README.md": "index.md",
    "PROTOCOL.md": "PROTOCOL.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "SECURITY.md": "SECURITY.md",
}
# Sections of the API reference: heading, introduction, objects.
API = (
    ("Tables", "Open, write and repair tables without Spark.", ("open", "write", "repair", "sql", "Table")),
    ("Companion indexes", "Index tables of Delta, Iceberg and Parquet.", ("companion",)),
    ("Queries", "Queries as objects, without quoting and escaping.", ("query",)),
    ("Standing queries", "Saved queries that are evaluated on new rows.", ("StandingQueries",)),
    (
        "Buckets",
        "Groups for `Table.aggregate`.",
        ("Histogram", "DateHistogram", "RangeBuckets", "Bucket"),
    ),
    ("Spark sessions", "Add IndexTables to a Spark session.", ("configure", "attach")),
    ("Spark functions", "Search operators and buckets for DataFrames.", ("functions",)),
    (
        "Caches and jobs of this machine",
        "Figures of the process and the machine, not of one table.",
        (
            "environment",
            "disk_cache",
            "flush_disk_cache",
            "flush_searchers",
            "invalidate_log_cache",
            "storage_read",
            "merge_jobs",
            "prewarm_jobs",
            "wait_for_prewarm",
        ),
    ),
    ("Errors", "Every error is an `IndexTablesError`.", ("errors",)),
)
_LINK = re.compile(r"(?<=\]\()(?P<target>[^)#:\s]+\.md)(?P<anchor>#[^)\s]*)?(?=\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the top folder and the API reference."""
    for source, target in TOP_PAGES.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    files.append(File.generated(config, "api.md", content=api_page()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    del config, files
    source = next((top for top, site in TOP_PAGES.items() if site == page.file.src_uri), None)
    return _LINK.sub(lambda link: _site_link(link, source, page.file.src_uri), markdown)


def api_page() -> str:
    """Return the API reference, with a directive for mkdocstrings in place of each object."""
    lines = ["# Python API", "", "All names are those of the package `indextables`.", ""]
    for heading, introduction, names in API:
        lines += [f"## {heading}", "", introduction, ""]
        for name in names:
            lines += [f"::: indextables.{name}", ""]
            if name in ("functions", "errors", "query"):
                lines[-1:] = ["    options: {show_root_heading: false, show_root_toc_entry: false}", ""]
    return "\n".join(lines)


def _site_link(link: re.Match[str], source: str | None, page: str) -> str:
    """Return a link's target as seen from a page of the site."""
    here = source if source is not None else f"docs/{page}"
    target = posixpath.normpath(posixpath.join(posixpath.dirname(here), link["target"]))
    in_site = TOP_PAGES.get(target, target.removeprefix("docs/"))
    return posixpath.relpath(in_site, posixpath.dirname(page) or ".") + (link["anchor"] or "")
