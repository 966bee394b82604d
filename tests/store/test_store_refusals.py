"""Which failures of a client prove that the store did nothing: files are deleted on that proof."""

import pytest

from indextables.store.remote import is_refused

TIMED_OUT = "Generic S3 error: error sending request for url ({}): operation timed out"


@pytest.mark.parametrize(
    "url",
    [
        "https://bucket.s3.eu-west-1.amazonaws.com/metadata/identity/t/1.json",
        "http://127.0.0.1:9000/metadata/identity/t/1.json",
        "http://127.0.0.1:9000/latest/meta-data/iam/1.json",
        "https://sts.logs.s3.amazonaws.com/t/1.json",
        "https://sts.s3.amazonaws.com/t/1.json",
        "https://b.s3.amazonaws.com/computeMetadata/1.json",
    ],
)
def test_a_timeout_is_no_refusal_whatever_the_object_is_called(url: str) -> None:
    assert not is_refused(OSError(TIMED_OUT.format(url)))


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/api/token",
        "https://sts.eu-west-1.amazonaws.com/",
        "https://login.microsoftonline.com/tenant/oauth2/token",
    ],
)
def test_a_service_of_credentials_that_does_not_answer_means_that_the_store_was_not_asked(url: str) -> None:
    assert is_refused(OSError(TIMED_OUT.format(url)))
