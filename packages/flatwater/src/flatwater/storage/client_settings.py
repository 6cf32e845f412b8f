"""Settings that a store's client does not find by itself.

Each client reads its own environment variables (AWS_*, GOOGLE_*, AZURE_*). Added are, for S3, the endpoint and the keys
and region that `aws configure` wrote, and for every store plain HTTP if its endpoint begins with http://.
"""

import configparser
import os
from collections.abc import Mapping
from pathlib import Path

_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""Variables with the address of another server than the cloud's."""
_KEY_NAMES = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_OTHER_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)
"""Variables by which the client has credentials already: if one is set, ~/.aws is not read."""

EXPECTED_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws configure`",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS to a key file, or run `gcloud auth application-default login`",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    "file": "nothing: make the folder writable",
}
"""Variables to set for each kind of store where there are no credentials."""


def client_settings(scheme: str) -> tuple[dict[str, str], bool]:
    """Return settings for the client of `s3`, `gs` or `az`, and whether its server is reached by plain HTTP."""
    endpoint = next((os.environ[name] for name in _ENDPOINTS[scheme] if os.environ.get(name)), "")
    settings: dict[str, str] = {}
    if scheme == "s3":
        settings = _profile_settings()
        if endpoint:  # the other clients read their variable themselves
            settings["endpoint"] = endpoint
    return settings, endpoint.startswith("http://")


def _profile_settings() -> dict[str, str]:
    """Return keys and region of the AWS profile in ~/.aws; empty if the environment has credentials."""
    if any(os.environ.get(name) for name in _OTHER_CREDENTIALS):
        return {}
    profile = os.environ.get("AWS_PROFILE", "default")
    keys = _profile_section("AWS_SHARED_CREDENTIALS_FILE", "credentials", profile)
    # The section of profile NAME is [NAME] in `credentials`, and [profile NAME] in `config`.
    config_section = profile if profile == "default" else f"profile {profile}"
    settings = _profile_section("AWS_CONFIG_FILE", "config", config_section)
    # The client names its keys without `aws_`.
    client_keys = {name.removeprefix("aws_"): keys[name] for name in _KEY_NAMES if name in keys}
    region = keys.get("region") or settings.get("region")
    # A region in the environment wins: the client reads it itself.
    if region and not (os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")):
        client_keys["region"] = region
    return client_keys


def _profile_section(variable: str, file: str, name: str) -> Mapping[str, str]:
    """Return the section `name` of the file that `variable` names, by default of ~/.aws/`file`; empty if missing."""
    parser = configparser.ConfigParser(interpolation=None)  # a secret key may hold a `%`
    parser.read(Path(os.environ.get(variable) or Path.home() / ".aws" / file))
    return parser[name] if parser.has_section(name) else {}
