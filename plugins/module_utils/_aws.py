# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The only place that imports the AWS SDK, and only if it is needed: the import takes a quarter of a second."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

AWS_PACKAGE = "boto3"


def load_aws() -> SimpleNamespace:
    """Return the used parts of botocore; raises ImportError if boto3 is not installed."""
    auth, awsrequest, config, credentials, exceptions, session = (
        importlib.import_module(f"botocore.{name}")
        for name in ("auth", "awsrequest", "config", "credentials", "exceptions", "session")
    )
    return SimpleNamespace(
        AWSRequest=awsrequest.AWSRequest,
        BotoCoreError=exceptions.BotoCoreError,
        ClientError=exceptions.ClientError,
        Config=config.Config,
        DeferredRefreshableCredentials=credentials.DeferredRefreshableCredentials,
        ProfileNotFound=exceptions.ProfileNotFound,
        Session=session.Session,
        SigV4QueryAuth=auth.SigV4QueryAuth,
        create_assume_role_refresher=credentials.create_assume_role_refresher,
    )
