# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Loading: which resources come out of a set of manifests, and every problem with its place."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Loaded, Source, load, path_components
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.stores import manifests
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.little_fleet import (
    CACHE,
    CLASS,
    CLUSTER,
    DEPLOYMENT,
    FLEET,
    GATEWAY,
    PATH_GATEWAY,
    POLICY,
    SERVICE,
    change,
    endpoint,
    fleet,
    load_text,
    only,
)

# Seconds after which work that should be bounded is taken to have no end; how fast it is, is measured elsewhere.
ENDLESS = 60

DATA = Path(__file__).parents[4] / "data" / "manifests"


def test_a_fleet_without_failures() -> None:
    loaded = fleet()
    assert loaded.problems == ()
    assert not loaded.errors
    assert [str(resource.ref) for resource in loaded.resources] == [
        "InferenceClass l4",
        "InferenceCluster west",
        "ModelCache team/weights",
        "ModelDeployment team/qwen",
        "ModelService team/qwen",
    ]
    assert (loaded.invalid, loaded.ignored) == (frozenset(), ())


def test_clusters_are_held_by_their_own_errors_and_by_those_of_their_classes() -> None:
    west = Ref("InferenceCluster", "", "west")
    known = [api.wire(resource) for resource in fleet().resources]
    assert fleet().held_clusters(known) == frozenset()
    own = load_text(CLASS, change(CLUSTER, "source: GKE", "source: Moon"))
    assert (own.can_be_held, own.unusable) == (True, {west})
    assert own.held_clusters([]) == {"west"}
    # Whatever a control cluster says of it.
    assert own.held_clusters(known) == {"west"}
    nowhere = load_text(CLASS, change(CLUSTER, "className: l4", "className: l5"))
    assert nowhere.held_clusters(known) == {"west"}
    of_class = load_text(change(CLASS, "spec:", "spce:"), CLUSTER)
    assert west not in of_class.unusable
    assert of_class.held_clusters(known) == {"west"}
    assert not load_text(CLASS, "spec: {").can_be_held
    # It may be anybody's.
    assert not load_text(CLASS, CLUSTER, change(DEPLOYMENT, "namespace: team", "namespace: 5")).can_be_held


def test_the_order_of_files_does_not_matter() -> None:
    texts = list(FLEET.values())
    assert (
        load_text(*texts).resources == load_text(*reversed(texts)).resources == load_text("---\n".join(texts)).resources
    )


@pytest.mark.parametrize("folder", sorted(path.name for path in DATA.iterdir()))
def test_the_manifests_of_the_reference_have_no_errors(folder: str) -> None:
    for part in [DATA / folder, *(path for path in (DATA / folder).iterdir() if path.is_dir())]:
        files = sorted(part.glob("*.yaml"))
        loaded = load(Source(path.name, path.read_bytes()) for path in files)
        foreign = [
            error for error in loaded.errors if "does not exist" not in error.message and "twice" not in error.message
        ]
        assert foreign == []
        assert loaded.resources or not files


def test_a_label_without_a_value_is_left_out_and_said() -> None:
    selector = "selector: {matchLabels: {modelplane.ai/deployment: qwen,\n    tier: }}"
    loaded = fleet(service=change(SERVICE, "selector: {matchLabels: {modelplane.ai/deployment: qwen}}", selector))
    (found,) = loaded.problems
    assert (found.severity, found.file, found.line) == ("warning", "service.yaml", 7)
    assert found.path == 'spec.endpoints[0].selector.matchLabels["tier"]'
    assert found.ref == Ref("ModelService", "team", "qwen")
    assert "has no value, and is left out" in found.message
    # Nor do other errors hide it. A field that is null is one that is absent.
    two = load_text(change(SERVICE, "spec:", "spec:\n  timeouts:\n  wrong: 1").replace("qwen}}", "qwen, tier: }}"))
    assert [(each.severity, each.path) for each in two.problems] == [
        ("error", "spec.wrong"),
        ("warning", 'spec.endpoints[0].selector.matchLabels["tier"]'),
    ]


@pytest.mark.parametrize(
    ("head", "spec", "place"),
    [
        ("kind: InferenceGateway\nmetadata: {name: a}", "{clusterName: west, serviceSelector: %s}", "serviceSelector"),
        (
            "kind: InferenceGateway\nmetadata: {name: a}",
            "{clusterName: west, auth: {method: APIKey, apiKey: {secretSelector: %s}}}",
            "auth.apiKey.secretSelector",
        ),
        ("kind: CallerPolicy\nmetadata: {name: a, namespace: b}", "{services: %s, callers: [{name: c}]}", "services"),
        ("kind: CallerPolicy\nmetadata: {name: a, namespace: b}", "{callerSelector: %s}", "callerSelector"),
    ],
)
def test_a_label_without_a_value_is_refused_where_it_would_let_more_in(head: str, spec: str, place: str) -> None:
    text = f"apiVersion: modelplane.ai/v1alpha1\n{head}\nspec: {spec}\n"
    assert not load_text(text % "{matchLabels: {a: b, tier: ''}}").errors
    for labels in ("{a: b, tier: }", "{tier: null}"):
        (error,) = load_text(text % f"{{matchLabels: {labels}}}").errors
        assert error.path == f'spec.{place}.matchLabels["tier"]'
        assert (error.line, error.message.partition(",")[0]) == (4, "has no value")


@pytest.mark.parametrize(("field", "hint"), [("services", "to select all"), ("budgets", "for no limit")])
def test_a_policy_is_not_wider_by_a_field_without_a_value(field: str, hint: str) -> None:
    text = f"{POLICY.rstrip()[:-1]}, {field}: }}"
    (found,) = load_text(text).errors
    assert (found.path, found.line, found.message) == (f"spec.{field}", 4, "has no value")
    assert hint in found.hint


def test_callers_share_a_budget_that_has_a_scope_without_a_value_only_if_it_is_said() -> None:
    budget = "{name: a, unit: Requests, limit: 1, per: Day, scope: }"
    (found,) = load_text(f"{POLICY.rstrip()[:-1]}, budgets: [{budget}]}}").errors
    assert (found.path, found.line, found.message) == ("spec.budgets[0].scope", 4, "has no value")
    assert "for a budget of each caller" in found.hint


@pytest.mark.parametrize("written", ["credential: ", "credential: null"])
def test_a_gateway_in_mode_model_calls_no_backend_without_its_key_by_a_field_without_a_value(written: str) -> None:
    keyless = endpoint(f"{{url: 'https://a.example', model: a, {written}}}")
    (found,) = fleet(gateway=GATEWAY, endpoint=keyless).problems
    assert (found.severity, found.path, found.message) == ("error", "spec.credential", "has no value")
    assert (found.file, found.line) == ("endpoint.yaml", 4)
    assert "Write apiKey, or remove it" in found.hint
    # In mode Path it is as if it were not there.
    plain = fleet(path=PATH_GATEWAY, endpoint=keyless)
    assert not plain.problems
    (known,) = (each for each in plain.resources if each.ref.kind == "ModelEndpoint")
    assert "credential" not in api.wire(known)["spec"]


@pytest.mark.parametrize(
    ("spec", "path", "hint"),
    [
        ("{clusterName: west, auth: %s}", "spec.auth", "remove it for a gateway without authentication"),
        ("{mode: Model, clusterName: west, auth: %s}", "spec.auth", "Write apiKey or jwt"),
        ("{clusterName: west, auth: {method: APIKey, apiKey: %s}}", "spec.auth.apiKey", ""),
        (
            "{clusterName: west, auth: {method: APIKey, apiKey: {secretSelector: %s}}}",
            "spec.auth.apiKey.secretSelector",
            "",
        ),
        ("{clusterName: west, tls: %s}", "spec.tls", "Write certificateRefs, or remove it for plain HTTP"),
        ("{clusterName: west, tls: {certificateRefs: %s}}", "spec.tls.certificateRefs", ""),
        ("{clusterName: west, serviceSelector: %s}", "spec.serviceSelector", "remove it to serve all ModelServices"),
    ],
)
@pytest.mark.parametrize("null", ["", "null", "~"])
def test_a_gateway_is_not_open_by_a_field_without_a_value(spec: str, path: str, hint: str, null: str) -> None:
    gateway = "apiVersion: modelplane.ai/v1alpha1\nkind: InferenceGateway\nmetadata: {name: edge}\nspec: "
    found = only(fleet(gateway=f"{gateway}{spec % null}\n").problems)
    assert (found.severity, found.path, found.line) == ("error", path, 4)
    assert hint in found.hint
    # With other errors it is one as well.
    both = fleet(gateway=f"{gateway}{spec.replace('{', '{wrong: 1, ', 1) % null}\n").errors
    assert {each.path for each in both} == {path, "spec.wrong"}


def test_a_field_without_a_value_is_absent_where_it_opens_nothing() -> None:
    absent = "{backend: Traefik, traefik: {version: 39.0.0}}"
    for spec in (absent, absent.replace("}}", "}, auth: , tls: }"), absent.replace("}}", "}, listeners: }")):
        document = (
            f"apiVersion: modelplane.ai/v1alpha1\nkind: InferenceGateway\nmetadata: {{name: default}}\nspec: {spec}\n"
        )
        (resource,) = load_text(document).resources
        assert api.wire(resource, set_only=True)["spec"] == {"backend": "Traefik", "traefik": {"version": "39.0.0"}}


@pytest.mark.parametrize(
    "key", ["sk-0123456789abcdef0123456789abcdef", "sk-proj-0123456789abcdefABCDEF", "mpk_0123456789abcdefABCDEF"]
)
@pytest.mark.parametrize("wrong", ["", "  wrong: 1\n"])
def test_a_key_in_the_place_of_a_name_is_refused_and_not_repeated(key: str, wrong: str) -> None:
    text = change(SERVICE, "name: qwen", f"name: {key}") + wrong
    loaded = fleet(service=text, again=text)
    errors = [each for each in loaded.errors if each.path == "metadata.name"]
    assert [(each.file, each.line) for each in errors] == [("service.yaml", 3), ("again.yaml", 3)]
    assert {(each.message, each.ref) for each in errors} == {("is a key, or has one in it", None)}
    assert ("spec.wrong" in [each.path for each in loaded.errors]) is bool(wrong)
    assert "ModelService" not in [each.ref.kind for each in loaded.resources]
    assert not loaded.can_be_held
    assert "23456789" not in str([str(problem) for problem in loaded.problems])


def test_names_that_begin_like_a_key_are_names() -> None:
    for name in ("sk-learn", "task-1", "risk-model", "sk-learn-large-embeddings-eu1", "sk-learn-large-de06b15fe6"):
        loaded = fleet(service=change(SERVICE, "name: qwen", f"name: {name}"))
        assert not loaded.problems
        assert Ref("ModelService", "team", name) in [each.ref for each in loaded.resources]


def test_problems_carry_file_line_document_and_ref() -> None:
    broken = change(DEPLOYMENT, "replicas: 1", "replicas: many").replace("image: nvcr", "imagee: 1, image: nvcr")
    loaded = load_text(CLASS, f"---\n{CACHE}---\n{broken}")
    ref = Ref("ModelDeployment", "team", "qwen")
    assert loaded.invalid == {ref}
    assert [(p.file, p.line, p.document, p.ref, p.path) for p in loaded.problems] == [
        ("1.yaml", 13, 2, ref, "spec.replicas"),
        ("1.yaml", 28, 2, ref, "spec.template.spec.engines[0].members[0].template.spec.containers[0].imagee"),
    ]


def test_all_errors_of_all_files_come_in_one_answer() -> None:
    loaded = load_text(
        "a: [",
        change(CLASS, "driver: ", "drivr: "),
        "\n".join(["kind: ModelDeploymnt", "apiVersion: modelplane.ai/v1alpha1"]),
        change(CLUSTER, "source: GKE", "source: GCP"),
        "x: 1\nx: 2\n",
    )
    assert {error.file for error in loaded.errors} == {"0.yaml", "1.yaml", "2.yaml", "3.yaml", "4.yaml"}
    assert list(loaded.problems) == sorted(loaded.problems, key=lambda p: (p.file, p.line or 0))


def test_an_older_form_is_reported_where_it_is_written() -> None:
    text = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelDeployment
metadata: {name: flat, namespace: team}
spec:
  replicas: 1
  engines:
  - name: main
    copis: 2
    members:
    - nodeSelector: {devices: [{name: gpu, selectors: [{cel: 'device.driver =='}]}]}
      template: {spec: {containers: [{name: engine, image: vllm}]}}
"""
    field, selector = load_text(text).errors
    assert (field.path, field.line) == ("spec.engines[0].copis", 8)
    assert (selector.path, selector.line) == (
        "spec.engines[0].members[0].nodeSelector.devices[0].selectors[0].cel",
        10,
    )
    error = only(load_text(change(text, "    copis: 2\n", "")).errors)
    assert (error.path, error.line) == ("spec.engines[0].members[0].nodeSelector.devices[0].selectors[0].cel", 9)


HEAD = "metadata: {name: x}\nspec: {}\n"


@pytest.mark.parametrize(
    ("text", "path", "says", "hint"),
    [
        pytest.param(
            "kind: InferenceClas\napiVersion: modelplane.ai/v1alpha1",
            "kind",
            "not a known kind",
            "InferenceClass",
            id="kind",
        ),
        pytest.param(
            "kind: inferenceclass\napiVersion: modelplane.ai/v1alpha1",
            "kind",
            "not a known kind",
            "InferenceClass",
            id="case",
        ),
        pytest.param(
            "kind: Zebra\napiVersion: modelplane.ai/v1alpha1",
            "kind",
            "not a known kind",
            "One of CallerPolicy, EKSCluster",
            id="far kind",
        ),
        pytest.param(
            "kind: ModelCache\napiVersion: modelplane.ai/v1",
            "apiVersion",
            "not a served version",
            "modelplane.ai/v1alpha1",
            id="version",
        ),
        pytest.param(
            "kind: ModelCache\napiVersion: modelplane.ai", "apiVersion", "", "modelplane.ai/v1alpha1", id="no version"
        ),
        pytest.param(
            "kind: ModelCache\napiVersion: v1", "apiVersion", "does not belong", "modelplane.ai/v1alpha1", id="no group"
        ),
        pytest.param(
            "kind: ModelCache\napiVersion: modelplane.io/v1alpha1",
            "apiVersion",
            "does not belong",
            "modelplane.ai/v1alpha1",
            id="group",
        ),
        pytest.param(
            "kind: EKSCluster\napiVersion: modelplane.ai/v1alpha1",
            "apiVersion",
            "does not belong",
            "infrastructure.modelplane.ai/",
            id="our other group",
        ),
        pytest.param(
            "kind: Zebra\napiVersion: modelplan.ai/v1alpha1", "kind", "not a known kind", "One of", id="near group"
        ),
        pytest.param("kind: ModelCache", "apiVersion", "is missing", "modelplane.ai/v1alpha1", id="kind only"),
        pytest.param("apiVersion: modelplane.ai/v1alpha1", "kind", "is missing", "One of", id="apiVersion only"),
        pytest.param("apiVersion: apps/v1", "kind", "is missing", "names its kind", id="foreign apiVersion only"),
        pytest.param("kind: Pod", "apiVersion", "is missing", "", id="foreign kind only"),
        pytest.param("kind: [ModelCache]\napiVersion: v1", "kind", "must be text, is a list", "", id="kind is a list"),
        pytest.param(
            "kind: ModelCache\napiVersion: 1",
            "apiVersion",
            "must be text, is a whole number",
            "",
            id="number as version",
        ),
        pytest.param(
            "kind: AKSCluster\napiVersion: infrastructure.modelplane.ai/v1alpha1",
            "kind",
            "AKSCluster is not supported",
            "EKSCluster and GKECluster are",
            id="AKS",
        ),
        pytest.param("replicas: 3", "", "neither apiVersion nor kind", "move other files", id="some mapping"),
        pytest.param("- kind: ModelCache", "", "is a list, not a manifest", "---", id="list"),
        pytest.param("just text", "", "is text, not a manifest", "apiVersion", id="text"),
        pytest.param("42", "", "is a whole number, not a manifest", "", id="number"),
        pytest.param("kind: List\napiVersion: v1\nitems: {}", "items", "must be a list", "", id="items"),
        pytest.param("kind: List\napiVersion: v1\nitems: [3]", "items[0]", "not a manifest", "", id="item"),
    ],
)
def test_what_is_no_manifest_of_ours(text: str, path: str, says: str, hint: str) -> None:
    error = only(load_text(f"{text}\n").errors)
    assert (error.file, error.path) == ("0.yaml", path)
    assert says in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    ("name", "text", "severity", "hint"),
    [
        ("overlay/kustomization.yaml", "resources: [a.yaml]", "error", "kubectl kustomize"),
        (
            "kustomization.yaml",
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization",
            "warning",
            "kubectl kustomize",
        ),
        ("chart/values.yaml", "replicas: 1", "error", "helm template"),
        ("chart/templates/x.yaml", "{{- if .Values.x }}\na: 1\n{{- end }}", "error", "helm template"),
    ],
)
def test_files_of_other_tools(name: str, text: str, severity: str, hint: str) -> None:
    problem = load([Source(name, text.encode())]).problems[0]
    assert problem.severity == severity
    assert hint in problem.hint


def test_other_kinds_are_listed_and_never_shown() -> None:
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: key, namespace: team}\nstringData: {token: hunter2}\n"
    loaded = load_text(
        "# a comment\napiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n"
        f"---\n{secret}---\nkind: X\napiVersion: y/v1\n"
    )
    assert loaded.ignored == (
        "0.yaml:2: v1 Namespace team",
        "0.yaml:6: v1 Secret team/key",
        "0.yaml:11: y/v1 X without a name",
    )
    assert not loaded.errors
    invalid = load_text(f"{secret}stringData: {{token: hunter3}}\n")
    assert "hunter" not in repr(invalid)


def test_no_control_character_reaches_a_terminal() -> None:
    loaded = load_text('apiVersion: v1\nkind: "X\\e[31m"\nmetadata: {name: "a\\nb"}\n')
    assert loaded.ignored == (r"0.yaml:1: v1 X\x1b[31m a\nb",)
    loaded = load_text(change(CACHE, "name: weights", 'name: "a\\nb\\e"'))
    assert loaded.errors
    assert not any("\x1b" in str(error) for error in loaded.errors)


def test_lists_are_expanded() -> None:
    def indented(text: str) -> str:
        return "- " + "\n  ".join(text.rstrip().split("\n")) + "\n"

    text = "apiVersion: v1\nkind: List\nitems:\n" + indented(CLASS) + indented(change(CLUSTER, "name: gpu", "nam: gpu"))
    loaded = load_text(text)
    assert [resource.name for resource in loaded.resources] == ["l4"]
    error = only(loaded.errors)
    assert (error.path, error.line, error.hint) == ("items[1].spec.nodePools[0].nam", 19, "Did you mean name?")
    typed = "apiVersion: modelplane.ai/v1alpha1\nkind: ModelCacheList\nitems:\n" + indented(CACHE.split("\n", 2)[2])
    assert [str(resource.ref) for resource in load_text(typed).resources] == ["ModelCache team/weights"]
    assert load_text("apiVersion: v1\nkind: List\nitems: []\n") == Loaded()


@pytest.mark.parametrize("text", ["{a: 1, a: 2}", "key: !secret x", "- a\n- !!python/object x"])
def test_of_a_text_with_errors_these_alone_are_reported(text: str) -> None:
    loaded = load([Source("fleet.yaml", text.encode())])
    assert len(loaded.problems) == 1
    assert "not a manifest" not in loaded.problems[0].message
    assert not loaded.can_be_held


def test_duplicates_name_both_places_and_leave_neither() -> None:
    loaded = load_text(CLASS, f"---\n---\n{CLASS}")
    error = only(loaded.errors)
    assert (error.file, error.line, error.document) == ("1.yaml", 3, 2)
    assert "also in 0.yaml, line 1" in error.message
    assert loaded.resources == ()
    assert loaded.invalid == {Ref("InferenceClass", "", "l4")}


def test_the_same_name_in_another_namespace_is_no_duplicate() -> None:
    assert not load_text(CACHE, change(CACHE, "namespace: team", "namespace: other")).errors


def test_the_namespace_default_is_the_absent_one() -> None:
    absent = change(CACHE, ", namespace: team", "")
    assert "twice" in only(load_text(absent, change(CACHE, "namespace: team", "namespace: default")).errors).message


@pytest.mark.parametrize(
    ("path", "components"),
    [
        ("", []),
        ("spec", ["spec"]),
        ("spec.nodePools[12].className", ["spec", "nodePools", 12, "className"]),
        ('a.b["x.y/z"].c', ["a", "b", "x.y/z", "c"]),
        ('a["say \\"x\\" [1]"][0]', ["a", 'say "x" [1]', 0]),
        ("a[99999999999999999999]", ["a", -1]),
    ],
)
def test_components_of_a_path(path: str, components: list[Any]) -> None:
    assert path_components(path) == components


def test_nothing_is_templated() -> None:
    text = change(CACHE, "Qwen/Qwen3-8B", "\"{{ lookup('pipe', 'touch x') }}\"")
    (resource,) = load_text(text).resources
    spec: Any = resource.spec
    assert spec.hugging_face.repo == "{{ lookup('pipe', 'touch x') }}"


def test_a_thousand_of_each_load_in_seconds() -> None:
    count = 300
    texts = [CLASS, CACHE]
    for index in range(count):
        texts.append(change(CLUSTER, "name: west", f"name: west-{index}"))
        texts.append(change(DEPLOYMENT, "name: qwen", f"name: qwen-{index}"))
        texts.append(SERVICE.replace("qwen", f"qwen-{index}"))
    start = time.process_time()
    loaded = load([Source("all.yaml", "---\n".join(texts).encode())])
    assert loaded.problems == ()
    assert len(loaded.resources) == 3 * count + 2
    # About half a second; the bound is there to notice quadratic work, not a busy machine.
    assert time.process_time() - start < ENDLESS


def test_files_and_folders_lead_to_the_same(tmp_path: Path) -> None:
    for name, text in FLEET.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    sources, problems = manifests.read([str(tmp_path)])
    assert problems == []
    assert load(sources).resources == fleet().resources
