"""Options of object stores: endpoints, credentials, connections."""

import re

from indextables.options.declare import (
    EVERYWHERE,
    PREFIX,
    HiddenValueError,
    Parser,
    boolean,
    endpoint,
    field_option,
    integer,
    option,
    optional_text,
    size,
)

_optional_boolean: Parser[bool | None] = Parser(boolean.parse, boolean.expects)
_FIVE_MIB = 5 << 20
UNITY_CATALOG = "unity-catalog"
PROVIDERS = (
    "environment",
    "profile",
    "web-identity",
    "container",
    "instance",
    "anonymous",
    UNITY_CATALOG,
)
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_HOST_PART = re.compile(r"[A-Za-z0-9-]+")
_OPERATIONS = ("PATH_READ", "PATH_READ_WRITE")
_ENCRYPTIONS = ("AES256", "SSE-KMS", "DSSE-KMS", "SSE-C")


def _one_of(text: str, words: tuple[str, ...]) -> str:
    match = next((word for word in words if word.lower() == text.strip().lower()), None)
    if match is None:
        raise ValueError
    return match


def _provider(text: str) -> str | None:
    name, colon, rest = text.strip().partition(":")
    if name.lower() == "profile" and rest:
        return f"profile:{rest}"
    if colon and name.lower() not in PROVIDERS and _FUNCTION.fullmatch(text.strip()):
        return text.strip()
    return _one_of(text, PROVIDERS)


_encryption: Parser[str | None] = Parser(
    lambda text: _one_of(text, _ENCRYPTIONS), f"one of {', '.join(_ENCRYPTIONS)}"
)

_operation: Parser[str | None] = Parser(
    lambda text: _one_of(text, _OPERATIONS), f"one of {', '.join(_OPERATIONS)}"
)


def _host_part(text: str) -> str | None:
    """A name that becomes a part of the name of a host: other characters would make it another host."""
    if _HOST_PART.fullmatch(text.strip()) is None:
        raise ValueError
    return text.strip()


_host_name: Parser[str | None] = Parser(_host_part, "letters, digits and '-'")

AWS_ACCESS_KEY = option(
    "aws.accessKey",
    optional_text,
    None,
    "Access key id of S3; goes with aws.secretKey.",
    secret=True,
    default_text="the environment, else the default chain",
)
AWS_SECRET_KEY = option(
    "aws.secretKey",
    optional_text,
    None,
    "Secret access key of S3.",
    secret=True,
    default_text="the environment, else the default chain",
)
AWS_SESSION_TOKEN = option(
    "aws.sessionToken",
    optional_text,
    None,
    "Session token of temporary S3 keys; goes with aws.accessKey and aws.secretKey.",
    secret=True,
    default_text="none",
)
AWS_REGION = option(
    "aws.region",
    _host_name,
    None,
    "Region of the bucket.",
    default_text="the environment, the AWS profile, else us-east-1",
)
AWS_ENDPOINT = option(
    "aws.endpoint",
    endpoint,
    None,
    "URL of an S3-compatible store; an http:// URL must be given in full.",
    default_text="AWS",
)
AWS_PATH_STYLE = option(
    "aws.pathStyleAccess",
    _optional_boolean,
    None,
    "Put the bucket into the path of requests (true) or into the host name (false).",
    default_text="true",
)

AWS_ENCRYPTION = option(
    "aws.encryption",
    _encryption,
    None,
    "Server-side encryption of objects that are written to S3; with SSE-C also of those that are read.",
    default_text="the bucket's",
)
AWS_ENCRYPTION_KEY = option(
    "aws.encryptionKey",
    optional_text,
    None,
    "Id of the KMS key for SSE-KMS and DSSE-KMS; the key itself, Base64, for SSE-C.",
    secret=True,
    default_text="AWS's key for S3",
)
AWS_REQUESTER_PAYS = option(
    "aws.requesterPays", _optional_boolean, None, "Pay for requests to a bucket of another account."
)

AZURE_ACCOUNT = option(
    "azure.accountName",
    _host_name,
    None,
    "Storage account, where the URL does not name it.",
    default_text="the URL's, else the environment's",
)
AZURE_KEY = option(
    "azure.accountKey",
    optional_text,
    None,
    "Access key of the storage account.",
    secret=True,
    default_text="the environment, else the default chain",
)
AZURE_SAS = option(
    "azure.sasToken",
    optional_text,
    None,
    "Shared access signature of the account or container; it is not renewed.",
    secret=True,
    default_text="the environment, else the default chain",
)
AZURE_CONNECTION_STRING = option(
    "azure.connectionString",
    optional_text,
    None,
    "Connection string: account, key or shared access signature, and endpoint in one.",
    secret=True,
    default_text="none",
)
AZURE_ENDPOINT = option(
    "azure.endpoint",
    endpoint,
    None,
    "URL of the blob service; an http:// URL must be given in full.",
    default_text="https://<account>.blob.core.windows.net",
)
AZURE_TENANT = option(
    "azure.tenantId", optional_text, None, "Tenant of a service principal.", default_text="the environment's"
)
AZURE_CLIENT = option(
    "azure.clientId",
    optional_text,
    None,
    "Client id of a service principal; goes with azure.tenantId and azure.clientSecret.",
    default_text="the environment's",
)
AZURE_CLIENT_SECRET = option(
    "azure.clientSecret",
    optional_text,
    None,
    "Secret of a service principal.",
    secret=True,
    default_text="the environment, else the default chain",
)
AZURE_TOKEN = option(
    "azure.bearerToken",
    optional_text,
    None,
    "OAuth token for the storage account; it is not renewed.",
    secret=True,
    default_text="none",
)
AZURE_TOKEN_FILE = option(
    "azure.federatedTokenFile",
    optional_text,
    None,
    "File with the federated token of a workload identity; goes with azure.tenantId and azure.clientId.",
    default_text="AZURE_FEDERATED_TOKEN_FILE",
)
AZURE_AUTHORITY = option(
    "azure.authorityHost",
    endpoint,
    None,
    "URL of the service that issues OAuth tokens.",
    default_text="https://login.microsoftonline.com",
)
AZURE_IDENTITY_ENDPOINT = option(
    "azure.identityEndpoint",
    endpoint,
    None,
    "URL of the machine's identity service.",
    default_text="http://169.254.169.254/metadata/identity/oauth2/token",
)

GCP_KEY = option(
    "gcp.serviceAccountKey",
    optional_text,
    None,
    "Key of a service account, as its JSON text.",
    secret=True,
    default_text="the environment, else the default chain",
)
GCP_FILE = option(
    "gcp.credentialsFile",
    optional_text,
    None,
    "Path of a credentials file (service account or application default).",
    default_text="GOOGLE_APPLICATION_CREDENTIALS, else the default chain",
)
GCP_ENDPOINT = option(
    "gcp.endpoint",
    endpoint,
    None,
    "URL of the storage service; an http:// URL must be given in full.",
    default_text="https://storage.googleapis.com",
)

PROVIDER = option(
    "credentials.provider",
    Parser(_provider, "one of " + ", ".join(PROVIDERS) + ", or module:function"),
    None,
    "The only place that credentials are taken from (docs/operations/storage.md). `profile:name` is an AWS "
    "profile; `module:function` is called in every process that needs credentials.",
    default_text="the options, else the environment, else the default chain",
)

PROVIDER_CLASS = option(
    "aws.credentialsProviderClass",
    optional_text,
    None,
    "A class of AWS, Hadoop or IndexTables for Scala that has a counterpart among the providers. Another one "
    "is refused when a bucket is opened; set credentials.provider to the name of a Python function then.",
    default_text="none",
)

UC_WORKSPACE = option(
    "databricks.workspaceUrl",
    endpoint,
    None,
    "URL of a Unity Catalog server, for credentials.provider=unity-catalog.",
    default_text="none",
)
UC_TOKEN = option(
    "databricks.apiToken",
    optional_text,
    None,
    "Token for Unity Catalog; or use databricks.clientId and databricks.clientSecret.",
    secret=True,
    default_text="none",
)
UC_CLIENT = option(
    "databricks.clientId",
    optional_text,
    None,
    "Id of a service principal of Unity Catalog.",
    default_text="none",
)
UC_CLIENT_SECRET = option(
    "databricks.clientSecret",
    optional_text,
    None,
    "Secret of a service principal of Unity Catalog.",
    secret=True,
    default_text="none",
)
UC_TABLE = option(
    "databricks.tableName",
    optional_text,
    None,
    "Name (catalog.schema.table) of the table whose credentials Unity Catalog vends.",
    default_text="credentials for the path",
)
UC_OPERATION = option(
    "databricks.credential.operation",
    _operation,
    None,
    "The operation for which Unity Catalog issues credentials.",
    default_text="PATH_READ_WRITE, or PATH_READ if the catalog does not allow that",
)
UC_ATTEMPTS = option(
    "databricks.retry.attempts",
    integer(1, 10),
    3,
    "Maximum number of attempts for a request to Unity Catalog.",
)

MAX_CONNECTIONS = option(
    "cloud.maxConnections", integer(1), 50, "Maximum number of idle connections to a store."
)
CONNECTION_TIMEOUT_MS = option(
    "cloud.connectionTimeout", integer(1), 10_000, "Connection timeout in milliseconds."
)
READ_TIMEOUT_MS = option(
    "cloud.readTimeout",
    integer(1),
    30_000,
    "Milliseconds without data after which a read is retried; writes get more, by their size.",
)
HEDGE_AFTER_MS = option(
    "cloud.hedgeAfter",
    integer(0),
    1000,
    "Milliseconds after which a read of ranges of up to 1 MiB is requested a second time; the first answer "
    "is used. Of all reads of a bucket at most about 5% are requested twice. 0 for never.",
)
MAX_RETRIES = option(
    "cloud.maxRetries",
    integer(0),
    10,
    "Maximum number of retries after a transient error, with exponential backoff.",
)
MULTIPART_THRESHOLD = option(
    "s3.multipartThreshold",
    size,
    32 << 20,
    "Larger files are uploaded in parts; on every object store.",
)
PART_SIZE = option(
    "s3.partSize",
    Parser(lambda text: _at_least_five(size.parse(text)), "a size of at least 5M, such as 64M", size.show),
    16 << 20,
    "Size of a part of an upload; it grows for files of more than 10,000 parts.",
)
MAX_CONCURRENCY = option(
    "s3.maxConcurrency",
    integer(1),
    4,
    "Number of parts that are uploaded in parallel; this many are held in memory.",
)


def _at_least_five(number: int) -> int:
    if number < _FIVE_MIB:
        raise ValueError
    return number


# --- keys of Hadoop's file systems -------------------------------------------------------------------

# Keys with a counterpart, without the family's prefix; S3A has each also for one bucket, ABFS for one account
# or one container of it.
HADOOP_S3A = frozenset(
    {
        "access.key",
        "secret.key",
        "session.token",
        "aws.credentials.provider",
        "endpoint",
        "endpoint.region",
        "path.style.access",
        "connection.ssl.enabled",
        "encryption.algorithm",
        "encryption.key",
        "server-side-encryption-algorithm",
        "server-side-encryption.key",
        "requester.pays.enabled",
    }
)
HADOOP_AZURE = frozenset(
    {
        "account.key",
        "account.auth.type",
        "account.oauth.provider.type",
        "account.oauth2.client.id",
        "account.oauth2.client.secret",
        "account.oauth2.client.endpoint",
        "account.oauth2.msi.tenant",
        "account.oauth2.msi.endpoint",
        "account.oauth2.msi.authority",
        "account.oauth2.token.file",
        "account.keyprovider",
        "sas",
        "sas.fixed.token",
        "sas.token.provider.type",
    }
)
HADOOP_GS = frozenset(
    {
        "auth.type",
        "auth.service.account.enable",
        "auth.service.account.json.keyfile",
        "auth.service.account.email",
        "auth.service.account.private.key.id",
        "auth.service.account.private.key",
        "auth.null.enable",
        "auth.access.token.provider",
        "auth.access.token.provider.impl",
        "storage.root.url",
    }
)
HADOOP_HDFS = (
    "ha.namenodes.",
    "namenode.rpc-address.",
    "client.use.datanode.hostname",
    "client.socket-timeout",
    "data.transfer.protection",
)
# Prefixes of the keys that are read from Hadoop's configuration, in upper and lower case as in Hadoop.
HADOOP_PREFIXES = (
    "fs.s3a.",
    "fs.azure.",
    "fs.gs.",
    "fs.defaultFS",
    PREFIX,
    *(f"dfs.{name}" for name in HADOOP_HDFS),
)
_HADOOP_PUBLIC = (
    "endpoint",
    "region",
    ".access",
    "enabled",
    "enable",
    "provider",
    ".type",
    "algorithm",
    "url",
)


def hadoop_key(key: str) -> bool:
    """Whether a key of Hadoop's configuration has a counterpart here.

    >>> hadoop_key("fs.s3a.bucket.logs.access.key"), hadoop_key("fs.s3a.threads.max")
    (True, False)
    """
    if key.startswith("fs.s3a."):
        rest = key.removeprefix("fs.s3a.")
        return rest in HADOOP_S3A or (
            rest.startswith("bucket.") and any(rest.endswith(f".{name}") for name in HADOOP_S3A)
        )
    if key.startswith("fs.azure."):
        rest = key.removeprefix("fs.azure.")
        return any(rest == name or rest.startswith(f"{name}.") for name in HADOOP_AZURE)
    if key.startswith("fs.gs."):
        return key.removeprefix("fs.gs.") in HADOOP_GS
    if key.startswith("dfs."):
        return key.removeprefix("dfs.").startswith(HADOOP_HDFS)
    return key == "fs.defaultfs"


def _hadoop_family(key: str, suffix: str, what: str) -> None:
    def check(rest: str, text: str) -> None:
        if not hadoop_key(f"{key}.{rest}"):
            raise HiddenValueError
        if "@" in text and rest.endswith("endpoint"):
            raise HiddenValueError

    field_option(
        key,
        suffix,
        check,
        f"Keys of Hadoop's {what} file system, which are also taken from the session's Hadoop configuration; "
        "options of indextables take precedence (docs/operations/storage.md).",
        expects="a key with a counterpart (docs/operations/storage.md, 'Hadoop configuration')",
        where=EVERYWHERE,
        is_secret=lambda rest: not rest.endswith(_HADOOP_PUBLIC),
    )


_hadoop_family("fs.s3a", "<key>", "S3A")
_hadoop_family("fs.azure", "<key>", "Azure")
_hadoop_family("fs.gs", "<key>", "Google")
_hadoop_family("dfs", "<key>", "HDFS")
DEFAULT_FILE_SYSTEM = option(
    "fs.defaultFS",
    optional_text,
    None,
    "URL that a path without a scheme is relative to; in Spark that of the session's Hadoop configuration.",
    default_text="the local disk",
)
