# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Names under which engines serve: flags, variables of Kubernetes and of shells. What is not certain is unknown."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.pod_template import Container
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers import names as engine_names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers.names import ServedNames
from hypothesis import given
from hypothesis import strategies as st

OWN = {"MODELPLANE_SERVED_MODEL_NAME": "team/qwen"}
REFERENCE = "$(MODELPLANE_SERVED_MODEL_NAME)"
VLLM = "vllm/vllm-openai"
SECRET = {"secretKeyRef": {"name": "a", "key": "b"}}


def container(fields: dict[str, Any]) -> Container:
    return Container.model_validate({"name": "engine", "image": "registry.example.com/engine:1", **fields})


def served(fields: dict[str, Any]) -> ServedNames | None:
    return engine_names.served_names(container(fields), OWN)


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
        ({"command": ["sh", "-c", "vllm serve m --served-model-name a b; sleep 1"]}, ("a", "b"), False),
        ({"command": ["sh", "-c", 'vllm serve m "$@"'], "args": ["--", "--served-model-name=a"]}, ("a",), False),
        # The first one is the name of the script, $0.
        ({"command": ["sh", "-c", 'vllm serve m "$@"'], "args": ["--served-model-name=a"]}, (), False),
        # Arguments that the script does not pass on do not reach the engine.
        ({"command": ["sh", "-c", "exec vllm serve m"], "args": ["--served-model-name", "team/qwen"]}, (), False),
        ({"command": ["sh", "-c"], "args": ["exec vllm serve m", "--", "--served-model-name=a"]}, (), False),
        (
            {"command": ["sh", "-c", "vllm serve m --served-model-name=a"], "args": ["--served-model-name=b"]},
            ("a",),
            False,
        ),
        ({"command": ["sh", "-c", "exec vllm serve m $*", "--", "--served-model-name=a"]}, ("a",), False),
        ({"command": ["sh", "-c"], "args": ['vllm serve "$@"', "--", "m", "--served-model-name=a"]}, ("a",), False),
        # The last one counts.
        (
            {
                "command": ["sh", "-c", 'vllm serve "$@" --served-model-name=a'],
                "args": ["--", "m", "--served-model-name=b"],
            },
            ("a",),
            False,
        ),
        ({"command": ["sh", "-c", "vllm serve " + '"$@" ' * 9], "args": ["--served-model-name=a"]}, ("a",), False),
        # Scripts in scripts.
        ({"command": ["sh", "-c", "exec bash -c 'vllm serve m --served-model-name a'"]}, ("a",), False),
        ({"command": ["sh", "-c", "bash -euo pipefail -c 'vllm serve m --served-model-name=a'"]}, ("a",), False),
        (
            {"command": ["sh", "-c", 'bash -c \'vllm serve "$@"\' -- m "$@"', "--", "--served-model-name=a"]},
            ("a",),
            False,
        ),
        ({"command": ["sh", "-c", "bash -c 'vllm serve m \"$@\"' --served-model-name=a --seed=1"]}, (), False),
        (
            {"command": ["sh", "-c", 'echo bash -c "vllm serve m --served-model-name a"; vllm serve m']},
            (),
            False,
        ),
        ({"command": ["sh", "-c", "vllm serve m $*", "my name", "--served-model-name=a", "--seed=1"]}, ("a",), False),
        # The file does not override arguments.
        ({"image": VLLM, "args": ["--config=/a.yaml", "--served-model-name=a"]}, ("a",), False),
        # No shell: what seems to be a variable of it is the name itself.
        ({"image": VLLM, "args": ["--served-model-name=$NAME"]}, ("$NAME",), True),
    ],
)
def test_names(fields: dict[str, Any], names: tuple[str, ...], can_be_added: bool) -> None:
    assert served(fields) == ServedNames(names, can_be_added)


@pytest.mark.parametrize("fields", [{}, {"command": ["/bin/own-server", "--served-model-name=a"]}])
def test_other_programs_may_serve_any_name(fields: dict[str, Any]) -> None:
    assert served(fields) is None


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
    ("export N=a\nexec vllm serve m --served-model-name $N", "a"),
    ('export N="a" M=b; vllm serve m --served-model-name "${N}" --seed 1', "a"),
    ("N=a; M=$N/b && vllm serve m --served-model-name=$M", "a/b"),
    ("cd / && export N=a && exec vllm serve m --served-model-name $N", "a"),
    ("N=a; export N\nvllm serve m --served-model-name '$N'", "$N"),
    ("N=a; vllm serve m --served-model-name \\$N", "$N"),
    ('N=a; vllm serve m --served-model-name "\\$N"', "$N"),
    ("N=a; N=b; vllm serve m --served-model-name $N", "b"),
    ("N=a vllm serve m --served-model-name $GIVEN", "given"),
    ("vllm serve m --served-model-name $GIVEN 2>&1 | tee /log", "given"),
    ("vllm serve m > /log --served-model-name ${GIVEN:-else}", "given"),
    ("GIVEN=a vllm serve m --served-model-name $GIVEN", "given"),
    ("# don't\nvllm serve m --served-model-name $(GIVEN)", "given"),
    ("N=a; if [ -f /x ]; then echo; fi; vllm serve m --served-model-name $N", "a"),
    (". /venv/bin/activate; vllm serve m --served-model-name $MODELPLANE_SERVED_MODEL_NAME", "team/qwen"),
    ("if [ -f /x ]; then N=a; fi; vllm serve m --served-model-name $N", None),
    ("N=b; if [ -f /x ]; then N=a; fi; vllm serve m --served-model-name $N", None),
    ("[ -f /x ] && N=a; vllm serve m --served-model-name $N", None),
    ("[ -f /x ] || N=a; vllm serve m --served-model-name $N", None),
    ("(N=a); vllm serve m --served-model-name $N", None),
    ("N=a | cat; vllm serve m --served-model-name $N", None),
    ("N=a & vllm serve m --served-model-name $N", None),
    ("f() { N=a; }; vllm serve m --served-model-name $N", None),
    ("N=b; read N; vllm serve m --served-model-name $N", None),
    ("N=b; unset N; vllm serve m --served-model-name $N", None),
    ("for N in a b; do vllm serve m --served-model-name $N; done", None),
    ("N=$(hostname); vllm serve m --served-model-name $N", None),
    ("N=`hostname`; vllm serve m --served-model-name $N", None),
    ("vllm serve m --served-model-name $(hostname)", None),
    (". /env; vllm serve m --served-model-name $GIVEN", None),
    ("N='a b'; vllm serve m --served-model-name $N", None),
    ("vllm serve m --served-model-name $UNDEFINED", None),
    ("vllm serve m --served-model-name $1", None),
    ("bash -c 'vllm serve m --served-model-name $GIVEN'", "given"),
    ('bash -c "vllm serve m --served-model-name $GIVEN"', "given"),
    ('bash -c "vllm serve m --served-model-name \\$GIVEN"', "given"),
    ("export N=a; /bin/sh -ec 'vllm serve m --served-model-name $N'", "a"),
    ("bash -c \"sh -c 'vllm serve m --served-model-name a'\"", "a"),
    ("bash -c 'N=a; vllm serve m --served-model-name $N'", "a"),
    # Another shell does not know what is not exported, nor this one what it sets.
    ("N=a; bash -c 'vllm serve m --served-model-name $N'", None),
    ("GIVEN=a bash -c 'vllm serve m --served-model-name $GIVEN'", None),
    ("env GIVEN=a bash -c 'vllm serve m --served-model-name $GIVEN'", None),
    ("env -u B A=b nice -n 5 bash -x -c -- 'vllm serve m --served-model-name $GIVEN'", "given"),
    ("env -i bash -c 'vllm serve m --served-model-name $GIVEN'", None),
    ('env -i bash -c "vllm serve m --served-model-name \\$GIVEN"', None),
    ('env -u GIVEN bash -c "vllm serve m --served-model-name $GIVEN"', "given"),
    ("env - bash -c 'vllm serve m --served-model-name $GIVEN'", None),
    ("exec env --ignore-environment A=b bash -c '. /env; vllm serve m --served-model-name $GIVEN'", None),
    ("env -i bash -c '. /env; vllm serve m --served-model-name $MODELPLANE_SERVED_MODEL_NAME'", None),
    ("env -u GIVEN bash -c 'vllm serve m --served-model-name $GIVEN'", None),
    ("env -uGIVEN bash -c 'vllm serve m --served-model-name $GIVEN'", None),
    ("env --unset=GIVEN bash -c 'vllm serve m --served-model-name $GIVEN'", None),
    ('GIVEN=`hostname`; export N=a; bash -c "vllm serve m --served-model-name $GIVEN"', None),
    ("bash -c '. /env; vllm serve m --served-model-name $GIVEN'", None),
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
    shown = script.replace("$(GIVEN)", "given").replace("/venv/bin/activate", "/dev/null").replace("/log", "/dev/null")
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GIVEN": "given", "FOUND": str(tmp_path / "words"), **OWN}
    subprocess.run(["sh", "-c", shown], env=variables, check=True, capture_output=True)
    words = (tmp_path / "words").read_text().splitlines()
    position = next(index for index, word in enumerate(words) if word.startswith("--served-model-name"))
    assert (words[position].partition("=")[2] or words[position + 1]) == name


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
        ({"command": ["sh", "-c", 'set -euo pipefail; vllm serve m "$@"']}, (), ()),
        ({"command": ["sh", "-c", 'set -- --served-model-name a; vllm serve m "$@"']}, (), ("",)),
        ({"command": ["sh", "-c", 'shift; vllm serve m "$@"', "--", "a", "b"]}, (), ("",)),
        ({"command": ["sh", "-c", 'serve() { vllm serve m "$@"; }; serve --served-model-name a']}, (), ("",)),
        ({"command": ["sh", "-c", "echo --served-model-name a | xargs vllm serve m"]}, (), ("",)),
        ({"command": ["sh", "-c", 'bash -c "vllm serve $*"', "--", "m", "--served-model-name=a"]}, (), ("",)),
        ({"command": ["sh", "-c", 'bash -c "vllm serve m --seed=$@"', "--", "1", "--served-model-name=a"]}, (), ("",)),
        ({"command": ["sh", "-c", 'bash -c "vllm serve m $FLAGS --served-model-name $N"']}, ("N",), ("FLAGS",)),
    ],
)
def test_what_is_not_known(fields: dict[str, Any], unknown: tuple[str, ...], flags: tuple[str, ...]) -> None:
    found = served(fields)
    assert found is not None
    assert (found.unknown, found.unknown_flags) == (unknown, flags)


def test_a_file_of_flags_may_set_a_name() -> None:
    found = served({"image": VLLM, "args": ["--config", "/etc/vllm.yaml"]})
    assert found == ServedNames((), can_be_added=False, in_file=True)


@pytest.mark.parametrize(("names", "refused"), [(["a"], 0), (["a", "b"], 2)])
def test_sglang_takes_one_name(names: list[str], refused: int) -> None:
    sglang = ["python3", "-m", "sglang.launch_server", "--served-model-name", *names, "--tp", "2"]
    found = served({"command": sglang})
    assert found is not None
    assert found.refused == refused
    assert served({"command": ["vllm", "serve", "m", "--served-model-name", *names]}) == ServedNames(tuple(names), True)


def test_values_that_grow_are_not_known() -> None:
    """Each variable is twice the one before it, so that the last one would have 2 ** 200 characters."""
    doubled = env(V0="ab", **{f"V{index}": f"$(V{index - 1})" * 2 for index in range(1, 200)})
    script = "N=ab; " + "N=$N$N; " * 200 + "vllm serve m --served-model-name "
    for fields in (
        {"image": VLLM, "args": ["--served-model-name=$(V199)"]},
        {"command": ["sh", "-c", f"{script}$N"]},
        {"command": ["sh", "-c", f"N={'x' * 999}; vllm serve m --served-model-name {'$N' * 9999}"]},
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
    assert found is None or not any("\ue000" in name for name in found.names)
