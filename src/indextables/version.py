"""The version of this release, its only source."""

VERSION = "0.1.0"
ENGINE = f"indextables/{VERSION}"
