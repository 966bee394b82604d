"""Options of object stores: endpoints, credentials, connections."""

from indextables.options.declare import (
    Parser,
    boolean,
    endpoint,
    integer,
    option,
    optional_text,
    refused,
    size,
)

_optional_boolean: Parser[bool | None] = Parser(boolean.parse, boolean.expects)
_FIVE_MIB = 5 << 20

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
    optional_text,
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

AZURE_ACCOUNT = option(
    "azure.accountName",
    optional_text,
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
    Parser(lambda text: _at_least_five(size.parse(text)), "a size of at least 5M, such as 64M"),
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


refused(
    "aws.credentialsProviderClass",
    "classes are not loaded by name; use the environment, an AWS profile, or a callable given to open_store",
)
refused("gcp.projectId", "a bucket's name is unique without its project; leave the key out")
refused("gcp.bucketName", "the bucket is named by the table's URL, gs://bucket/path; leave the key out")
refused("cloud.bufferSize", "objects are read by ranges that the query needs, not through a buffer")
refused("s3.streamingThreshold", "every upload is streamed; s3.multipartThreshold says when in parts")
refused("s3.maxQueueSize", "s3.maxConcurrency bounds how much of an upload is in memory")
for _key in (
    "workspaceUrl",
    "apiToken",
    "clientId",
    "clientSecret",
    "credential.operation",
    "retry.attempts",
):
    refused(
        f"databricks.{_key}",
        "Unity Catalog does not vend credentials here; give the store's own (aws.*, azure.*, gcp.*)",
    )
for _key in ("catalogType", "uri", "token", "credential", "warehouse", "s3Endpoint", "s3PathStyleAccess"):
    refused(f"iceberg.{_key}", "tables are opened by their path, not through an Iceberg catalog")
