"""The AWS profile: keys, region and endpoint from the files that the AWS tools share."""

import configparser
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from indextables.errors import CredentialsError
from indextables.store.credentials import CredentialsProvider, StaticKeys

# ways to keys that need AWS's own library
_INDIRECT = ("sso_session", "sso_start_url", "role_arn", "credential_process", "web_identity_token_file")


@dataclass(frozen=True, slots=True, repr=False)
class Profile:
    """What a profile says; empty if there is none."""

    keys: CredentialsProvider | None = None
    region: str | None = None
    endpoint: str | None = None


def read_profile(environment: Mapping[str, str], home: Path) -> Profile:
    """The profile that AWS_PROFILE names, or the default one."""
    chosen = environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE")
    name = chosen or "default"
    shared = environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws" / "credentials"
    config = environment.get("AWS_CONFIG_FILE") or home / ".aws" / "config"
    values = {
        **_section(Path(config), name if name == "default" else f"profile {name}"),
        **_section(Path(shared), name),
    }
    if chosen and not values:
        raise CredentialsError(
            f"AWS_PROFILE is '{chosen}', but neither {shared} nor {config} has a profile of that name"
        )
    return Profile(_keys(name, values, environment), values.get("region"), values.get("endpoint_url"))


def _section(file: Path, name: str) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read(file, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):  # its text may hold secrets: do not quote it
        raise CredentialsError(f"{file} cannot be read as an AWS profile file; mend or remove it") from None
    return dict(parser[name]) if parser.has_section(name) else {}


def _keys(name: str, values: Mapping[str, str], environment: Mapping[str, str]) -> CredentialsProvider | None:
    if environment.get(
        "AWS_WEB_IDENTITY_TOKEN_FILE"
    ):  # stronger than a profile, and known to the client itself
        return None
    if (access := values.get("aws_access_key_id")) and (secret := values.get("aws_secret_access_key")):
        return StaticKeys(access, secret, values.get("aws_session_token"))
    way = next((way for way in _INDIRECT if way in values), None)
    return None if way is None else _through_boto3(name, way)


def _through_boto3(name: str, way: str) -> CredentialsProvider:
    try:
        # optional and slow to import; only such profiles need it
        import boto3  # noqa: PLC0415
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415
    except ImportError:
        raise CredentialsError(
            f"the AWS profile '{name}' takes keys by '{way}', which needs the package boto3; install it or "
            "put keys into the environment (aws configure export-credentials --format env)"
        ) from None
    provider: CredentialsProvider = Boto3CredentialProvider(boto3.Session(profile_name=name))
    return provider
