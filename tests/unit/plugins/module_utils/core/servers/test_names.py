# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Names under which engines serve: flags, variables of Kubernetes and of a shell."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.pod_template import Container
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers.command_line import CommandLine
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers.flags import ServedNames, served_names
from hypothesis import given
from hypothesis import strategies as st

OWN = {"MODELPLANE_SERVED_MODEL_NAME": "team/qwen"}
REFERENCE = "$(MODELPLANE_SERVED_MODEL_NAME)"
NAMED = "--served-model-name"
VLLM = "vllm/vllm-openai"
SECRET = {"secretKeyRef": {"name": "a", "key": "b"}}


def container(fields: dict[str, Any]) -> Container:
    return Container.model_validate({"name": "engine", "image": "registry.example.com/engine:1", **fields})


def served(fields: dict[str, Any]) -> ServedNames | None:
    return served_names(CommandLine.of(container(fields), OWN))


def env(**values: Any) -> list[dict[str, Any]]:
    return [
        {"name": name, "value": value} if isinstance(value, str) else {"name": name, "valueFrom": value}
        for name, value in values.items()
    ]


@pytest.mark.parametrize(
    ("fields", "names", "can_be_added"),
    [
        ({"image": VLLM}, (), True),
        ({"image": VLLM, "args": ["--served-model-name=a"]}, ("a",), True),
        ({"image": VLLM, "args": ["--served_model_name", "a", "b", "--seed=1", "c"]}, ("a", "b"), True),
        ({"image": VLLM, "args": ["--served-model-name=a", "--served-model-name", "b", "c"]}, ("b", "c"), True),
        ({"command": ["vllm", "serve", "m"], "args": ["--served-model-name", "a"]}, ("a",), True),
        ({"command": ["python3", "-m", "sglang.launch_server", "--served-model-name", "a"]}, ("a",), True),
        ({"command": ["sh", "-c", "exec vllm serve m"]}, (), False),
        ({"command": ["sh", "-c", "vllm serve m --served-model-name a b"]}, ("a", "b"), False),
        ({"command": ["sh", "-c", 'vllm serve m "$@"'], "args": ["--", "--served-model-name=a"]}, ("a",), False),
        # The first one is the name of the script, $0.
        ({"command": ["sh", "-c", 'vllm serve m "$@"'], "args": ["--served-model-name=a"]}, (), False),
        # Arguments that the script does not pass on do not reach the engine.
        ({"command": ["sh", "-c", "exec vllm serve m"], "args": ["--served-model-name", "team/qwen"]}, (), False),
        # The last one counts.
        (
            {"command": ["sh", "-c", 'vllm serve "$@" --served-model-name=a', "--", "m", "--served-model-name=b"]},
            ("a",),
            False,
        ),
        # The file does not override arguments.
        ({"image": VLLM, "args": ["--config=/a.yaml", "--served-model-name=a"]}, ("a",), False),
        # No shell: what seems to be a variable of it is the name itself.
        ({"image": VLLM, "args": ["--served-model-name=$NAME"]}, ("$NAME",), True),
    ],
)
def test_names(fields: dict[str, Any], names: tuple[str, ...], can_be_added: bool) -> None:
    assert served(fields) == ServedNames(names, can_be_added)


@pytest.mark.parametrize("fields", [{}, {"command": ["/bin/own-server", "--name=a"]}, {"args": [NAMED]}])
def test_other_programs_may_serve_any_name(fields: dict[str, Any]) -> None:
    assert served(fields) is None


@pytest.mark.parametrize("fields", [{"command": ["/bin/own-server", f"{NAMED}=a"]}, {"args": [NAMED, "a"]}])
def test_other_programs_with_the_flag(fields: dict[str, Any]) -> None:
    assert served(fields) == ServedNames(("a",), can_be_added=False)


@pytest.mark.parametrize(
    ("variables", "argument", "name"),
    [
        ([], REFERENCE, "team/qwen"),
        (env(A="a"), "$(A)", "a"),
        (env(A="a", B="$(A)/b", C="$(B)/c"), "$(C)", "a/b/c"),
        (env(A=REFERENCE), "$(A)", "team/qwen"),
        (env(A="a"), "$$(A)", "$(A)"),
        (env(A="a"), "$$$(A)", "$a"),
        (env(A="$$(B)", B="b"), "$(A)", "$(B)"),
        (env(A="a"), "$A", "$A"),
        (env(A="a"), "$(A", "$(A"),
        # A value is not expanded again where it is used.
        (env(A="$$(B)", B="$(A)"), "$(B)", "$(B)"),
        # The fleet sets its variable only where the container does not.
        (env(MODELPLANE_SERVED_MODEL_NAME="own"), REFERENCE, "own"),
        # Not there yet where it is referred to, so that the text stays; nor known for certain.
        (env(A="$(B)", B="b"), "$(A)", None),
        (env(A=REFERENCE, MODELPLANE_SERVED_MODEL_NAME="own"), "$(A)", None),
        (env(A=SECRET), "$(A)", None),
        (env(A=SECRET, B="x-$(A)"), "$(B)", None),
        ([], "$(UNDEFINED)", None),
    ],
)
def test_variables_are_expanded_as_kubernetes_does_it(
    variables: list[dict[str, Any]], argument: str, name: str | None
) -> None:
    for args in ([f"--served-model-name={argument}"], ["--served-model-name", argument]):
        found = served({"image": VLLM, "args": args, "env": variables})
        assert found is not None
        assert found.names == (() if name is None else (name,))
        assert bool(found.unknown) == (name is None)
        assert found.can_be_added == (name is not None)


SCRIPTS = [
    ("vllm serve m --served-model-name a", "a"),
    ("exec vllm serve m --served-model-name '$GIVEN'", "$GIVEN"),
    ("vllm serve m --served-model-name \\$GIVEN", "$GIVEN"),
    ('vllm serve m --served-model-name "\\$GIVEN"', "$GIVEN"),
    ('vllm serve m --served-model-name "${GIVEN}/x"', "given/x"),
    ("A=b vllm serve m --served-model-name $GIVEN", "given"),
    ("GIVEN=a vllm serve m --served-model-name $GIVEN", "given"),
    ("# don't\nvllm serve m --served-model-name $(GIVEN) # it's it", "given"),
    ("vllm serve m \\\n  --served-model-name $MODELPLANE_SERVED_MODEL_NAME\n", "team/qwen"),
    ("vllm serve m --chat-template 'a; b | c # `d`' --served-model-name a;", "a"),
    ("vllm serve m --served-model-name $(hostname)", None),
    ("vllm serve m --served-model-name $UNDEFINED", None),
    ("vllm serve m --served-model-name ${GIVEN:-else}", None),
    ("vllm serve m --served-model-name $1", None),
]


@pytest.mark.parametrize(("script", "name"), SCRIPTS)
def test_variables_of_a_script(script: str, name: str | None) -> None:
    found = served({"command": ["sh", "-c", script], "env": env(GIVEN="given")})
    assert found is not None
    assert found.names == (() if name is None else (name,))
    assert bool(found.unknown) == (name is None)
    assert not found.can_be_added


@pytest.mark.integration
@pytest.mark.parametrize(("script", "name"), [(script, name) for script, name in SCRIPTS if name])
def test_a_shell_gives_the_same_name(script: str, name: str, tmp_path: Any) -> None:
    program = tmp_path / "vllm"
    program.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done >> "$FOUND"\n')
    program.chmod(0o755)
    shown = script.replace("$(GIVEN)", "given")
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GIVEN": "given", "FOUND": str(tmp_path / "words"), **OWN}
    subprocess.run(["sh", "-c", shown], env=variables, check=True, capture_output=True)
    words = (tmp_path / "words").read_text().splitlines()
    position = words.index("--served-model-name")
    assert words[position + 1] == name


@pytest.mark.parametrize(
    "script",
    [
        "export N=a\nexec vllm serve m --served-model-name $N",
        "cd / && exec vllm serve m --served-model-name a",
        "vllm serve m --served-model-name a 2>&1 | tee /log",
        "vllm serve m --served-model-name a &",
        "(vllm serve m --served-model-name a)",
        "if [ -f /x ]; then vllm serve m; fi",
        "bash -c 'vllm serve m --served-model-name a'",
        "env A=b bash -c 'vllm serve m'",
        "vllm serve m --served-model-name 'a",
    ],
)
def test_other_scripts_are_not_read(script: str) -> None:
    assert served({"command": ["sh", "-c", script]}) == ServedNames((), can_be_added=False, in_script=True)


@pytest.mark.parametrize(
    ("fields", "unknown", "flags"),
    [
        # It may be a name, or a flag after the names.
        ({"image": VLLM, "args": ["--served-model-name", "a", "$(A)-$(B)"]}, ("A", "B"), ("A", "B")),
        ({"command": ["sh", "-c", "vllm serve m --served-model-name `hostname`"]}, ("",), ()),
        ({"image": VLLM, "args": ["$(FLAGS)"]}, (), ("FLAGS",)),
        ({"command": ["sh", "-c", "vllm serve $MODEL --seed $SEED ${FLAGS}"]}, (), ("FLAGS",)),
        ({"command": ["sh", "-c", "vllm serve m $(cat /flags)"]}, (), ("",)),
        ({"command": ["sh", "-c", 'vllm serve m "$@"']}, (), ()),
    ],
)
def test_what_is_not_known(fields: dict[str, Any], unknown: tuple[str, ...], flags: tuple[str, ...]) -> None:
    found = served(fields)
    assert found is not None
    assert (found.unknown, found.unknown_flags) == (unknown, flags)


def test_a_file_of_flags_may_set_a_name() -> None:
    found = served({"image": VLLM, "args": ["--config", "/etc/vllm.yaml"]})
    assert found == ServedNames((), can_be_added=False, in_file=True)


@pytest.mark.parametrize(("names", "rejected"), [(["a"], 0), (["a", "b"], 2)])
def test_sglang_takes_one_name(names: list[str], rejected: int) -> None:
    sglang = ["python3", "-m", "sglang.launch_server", "--served-model-name", *names, "--tp", "2"]
    found = served({"command": sglang})
    assert found is not None
    assert found.rejected == rejected
    assert served({"command": ["vllm", "serve", "m", "--served-model-name", *names]}) == ServedNames(tuple(names), True)


def test_values_that_grow_are_not_known() -> None:
    """Each variable is twice the one before it, so that the last one would have 2 ** 200 characters."""
    doubled = env(V0="ab", **{f"V{index}": f"$(V{index - 1})" * 2 for index in range(1, 200)})
    for fields in (
        {"image": VLLM, "args": ["--served-model-name=$(V199)"]},
        {"command": ["sh", "-c", "vllm serve m --served-model-name " + "$V9" * 999]},
        {"image": VLLM, "args": ["--served-model-name=" + "$(" * 19_999]},
        {"image": VLLM, "args": ["--served-model-name=" + "$(V9)" * 9_999]},
    ):
        found = served({**fields, "env": doubled})
        assert found is not None
        assert all(len(name) < 1_000_000 for name in found.names)


TEXT = st.text(alphabet=" \n\t\\'\"#$(){}&|;<>=`-NAvlm é", max_size=40)


@given(TEXT, TEXT)
def test_any_script_has_an_answer(before: str, after: str) -> None:
    script = f"{before} vllm serve m --served-model-name {after} --seed 1"
    found = served(
        {"command": ["sh", "-c", script], "args": [before or "a", after or "b"], "env": env(N=before, A=after)}
    )
    assert found is None or not any(mark in name for name in found.names for mark in "\ue000\ue001\ue002\ue003")
