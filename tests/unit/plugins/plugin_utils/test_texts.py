# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Whatever a module reports, no terminal takes a part of it for a command; data is as it was."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.module_run import run_module

HOSTILE = "a\x1b[2J\x9b1m\x07\u202eb\n\tc"
SHOWN = "a\\x1b[2J\\x9b1m\\x07\\u202eb\n\tc"


def ran(work: Any) -> dict[str, Any]:
    return run_module(SimpleNamespace(__name__="a.module", ARGUMENTS={"argument_spec": {}}, work=work), {})


@pytest.mark.parametrize("failed", [False, True])
def test_texts_for_people(failed: bool) -> None:
    reported = {
        "msg": HOSTILE,
        "table": [HOSTILE],
        "services": [HOSTILE],
        "clusters": {"east": {"msg": HOSTILE, "notes": [HOSTILE], "objects": [{"message": HOSTILE, "data": HOSTILE}]}},
        "content": HOSTILE,
    }
    result = ran(lambda module: module.fail_json(**reported) if failed else module.exit_json(**reported))
    assert result["failed"] is failed
    assert (result["msg"], result["table"], result["services"]) == (SHOWN, [SHOWN], [SHOWN])
    (value,) = result["clusters"]["east"]["objects"]
    assert (value["message"], result["clusters"]["east"]["msg"]) == (SHOWN, SHOWN)
    assert (value["data"], result["content"]) == (HOSTILE, HOSTILE)


def test_warnings_and_progress() -> None:
    def work(module: Any) -> None:
        module.warn(HOSTILE)
        module.log(HOSTILE)
        module.exit_json()

    result = ran(work)
    assert (result["warnings"], result["logged"]) == ([SHOWN], [SHOWN])
