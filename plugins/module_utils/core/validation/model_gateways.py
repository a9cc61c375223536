# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Validation of Model gateways, of their services and endpoints, and of the access of clients."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ..api import CallerPolicy, InferenceCluster, InferenceGateway, ModelEndpoint, ModelService
from ..api.caller_policy import EVERY_CALLER, Budget
from ..api.meta import LabelSelector, impossible_label
from ..api.model_endpoint import OPENAI
from ..api.model_route import MOST_ENTRIES
from ..caller_keys import NEXT_SUFFIX, caller_of, is_key
from ..compose import constants
from ..compose.backend import endpoint_problem, model_mode_obstacle
from ..compose.label_index import LabelIndex
from ..compose.model_gateway.budgets import (
    AT_GATEWAY,
    DIVIDED,
    DIVIDED_SERVICES,
    FEWER_RULES,
    UNDIVIDED,
    UNDIVIDED_SERVICES,
    TooManyRules,
    divided_budgets,
    divided_services,
    too_many_rules,
)
from ..compose.model_gateway.callers import NamespaceRights, rights
from ..compose.model_gateway.gateway import composed_gateways
from ..compose.model_gateway.routes import REQUEST_TIMEOUT, Route
from ..compose.model_gateway.selection import PolicySelection
from ..compose.service import Resolution
from ..devices.cel.times import parse_duration
from ..names import CLUSTER_LABEL, DEPLOYMENT_LABEL, REPLICA_INDEX_LABEL
from ..problem import Problem, pasted_key, warning
from ..servers.command_line import CommandLine
from ..servers.flags import SERVED_NAME, served_names
from ..servers.table import Setting, servers_in
from ..text import capitalized, field_path, listed, nearest, short, some

_FLAG, _CONFIG, _VARIABLE = SERVED_NAME, "--config", constants.SERVED_NAME_VARIABLE
_GATEWAY = "InferenceGateway"
_SERVICE = "ModelService"
_POLICY = "CallerPolicy"
_WINDOWS = ("Minute", "Hour", "Day", "Month")
_API_PREFIXES = frozenset({"v1", "anthropic"})
_AFTER_PLACEMENT = frozenset({CLUSTER_LABEL, REPLICA_INDEX_LABEL})
"""Labels of replicas that are not known before they are placed."""


def label_sets_of_placement(clusters: Iterable[InferenceCluster]) -> list[Mapping[str, str]]:
    """Return the labels that clusters add to endpoints of replicas: first no labels, then each set of labels once."""
    label_sets = {tuple(sorted(cluster.placement_labels.items())) for cluster in clusters}
    return [{}, *(dict(pairs) for pairs in sorted(label_sets) if pairs)]


class Serving(NamedTuple):
    """Service that connects a Model gateway to endpoints."""

    gateway: InferenceGateway
    service: ModelService
    selector: Mapping[str, str]


class Budgets(NamedTuple):
    """Budgets of a namespace.

    `rights`: the permissions of its policies, as far as manifests name callers.
    `too_many_rules`: the budgets with too many rules, by the policy that reports them.
    `divided`: the budgets (policy, name) that are divided by services.
    """

    rights: NamespaceRights
    too_many_rules: Mapping[str, TooManyRules]
    divided: Collection[tuple[str, str]]


class ServingIndex:
    """Index of the services of Model gateways by label.

    `gateways`: the composed gateways. Of each cluster, this is the first gateway by name.
    `clusters`: the clusters that define labels of endpoints.
    `selection`: the services that `policies` select.
    `endpoints`: the endpoints in the manifests.
    `alone`: True if all gateways are Model gateways.
    `idle`: the names of gateways without a service.
    """

    def __init__(
        self,
        gateways: Iterable[InferenceGateway],
        services: Iterable[ModelService],
        clusters: Iterable[InferenceCluster] = (),
        policies: Iterable[CallerPolicy] = (),
        endpoints: Iterable[ModelEndpoint] = (),
    ) -> None:
        all_gateways = list(gateways)
        self.alone = bool(all_gateways) and all(gateway.mode == "Model" for gateway in all_gateways)
        self.gateways = sorted(composed_gateways(all_gateways).values(), key=lambda gateway: gateway.name)
        self._policies: dict[str, list[CallerPolicy]] = {}
        for policy in sorted(policies, key=lambda policy: policy.name):
            self._policies.setdefault(policy.namespace, []).append(policy)
        services = list(services)
        self.selection = PolicySelection(
            (policy for policies_of_namespace in self._policies.values() for policy in policies_of_namespace), services
        )
        self._services = LabelIndex(services)
        self._budgets: dict[str, Budgets] = {}
        self._endpoints = LabelIndex(endpoint for endpoint in endpoints if endpoint.spec.schema_name == OPENAI)
        self._with_openai: dict[tuple[str, str], bool] = {}
        self._beside_openai: dict[tuple[str, frozenset[tuple[str, str]]], Sequence[str]] = {}
        self._given = label_sets_of_placement(clusters)
        self.idle = {gateway.name for gateway in self.gateways}
        self._by_label: dict[tuple[str, str, str], list[Serving]] = defaultdict(list)
        for service in services:
            serving = self.gateways_of(service)
            self.idle.difference_update(gateway.name for gateway in serving)
            if not serving:
                continue
            gateway = serving[0]
            for entry in service.spec.endpoints:
                selector = entry.selector.match_labels
                known_labels = sorted(selector.keys() - _AFTER_PLACEMENT)
                # The deployment label is the most selective one.
                key = DEPLOYMENT_LABEL if DEPLOYMENT_LABEL in known_labels else next(iter(known_labels), "")
                label_key = (service.namespace, key, selector.get(key, ""))
                self._by_label[label_key].append(Serving(gateway, service, selector))

    def gateways_of(self, service: ModelService) -> list[InferenceGateway]:
        """Return the gateways that serve a service."""
        return [gateway for gateway in self.gateways if gateway.serves(service.labels)]

    def budgets(self, namespace: str) -> Budgets:
        """Return the budgets of a namespace."""
        if namespace not in self._budgets:
            policies = self._policies.get(namespace, ())
            namespace_rights = NamespaceRights(
                [rights(policy, (), self.selection.services(policy)) for policy in policies]
            )
            services = self._services.matching(namespace, {})
            # A gateway without authentication does not enforce budgets.
            routed = [_unresolved(services, gateway) for gateway in self.gateways if gateway.spec.auth]
            excess_budgets = {
                excess.policies[0]: excess
                for route in routed
                for excess in too_many_rules(route, namespace_rights, AT_GATEWAY)
            }
            divided = {budget for route in routed for budget in divided_services(route, namespace_rights)}
            self._budgets[namespace] = Budgets(namespace_rights, excess_budgets, divided)
        return self._budgets[namespace]

    def has_openai(self, service: ModelService) -> bool:
        """Return True if a service selects endpoints with the OpenAI API. All replicas of the fleet have this API."""
        key = (service.namespace, service.name)
        if key not in self._with_openai:
            selectors = [entry.selector.match_labels for entry in service.spec.endpoints]
            self._with_openai[key] = any(
                DEPLOYMENT_LABEL in selector or self._endpoints.matching(service.namespace, selector)
                for selector in selectors
            )
        return self._with_openai[key]

    def find(self, namespace: str, labels: Mapping[str, str], *, placed: bool) -> Serving | None:
        """Return the gateway and service of an endpoint with these labels, or with `placed` False of a replica that may
        be placed on any cluster; None if no service selects it."""
        for placement_labels in () if placed else self._given[1:]:
            serving = next(self._all(namespace, {**placement_labels, **labels}, placed=False), None)
            if serving:
                return serving
        return next(self._all(namespace, labels, placed=placed), None)

    def beside_openai(self, namespace: str, labels: Mapping[str, str]) -> Sequence[str]:
        """Return the names of services that select endpoints with these labels, and some that speak OpenAI."""
        key = (namespace, frozenset(labels.items()))
        if key not in self._beside_openai:
            services = (serving.service for serving in self._all(namespace, labels, placed=True))
            self._beside_openai[key] = sorted({service.name for service in services if self.has_openai(service)})
        return self._beside_openai[key]

    def _all(self, namespace: str, labels: Mapping[str, str], *, placed: bool) -> Iterator[Serving]:
        for key, value in (*sorted(labels.items()), ("", "")) if self._by_label else ():
            for serving in self._by_label.get((namespace, key, value), ()):
                required_labels = serving.selector.items()
                if all(
                    labels.get(name) == text or (not placed and name in _AFTER_PLACEMENT)
                    for name, text in required_labels
                ):
                    yield serving


class Fleet(Protocol):
    """Resources of a fleet, and the services of its Model gateways."""

    @property
    def serving(self) -> ServingIndex:
        """Index of the services of all Model gateways."""

    def complete(self, kind: str) -> bool:
        """Return True if resources of this kind exist and all are valid."""

    def unknown(self, kind: str) -> bool:
        """Return True if the fleet has, or might have, resources of this kind with unknown content."""

    def of_kind(self, kind: str) -> Iterable[Any]:
        """Return all resources of a kind."""

    def find(self, kind: str, namespace: str, name: str) -> Any:
        """Return a resource; None without it."""


def model_gateway(gateway: Any, fleet: Fleet) -> Iterator[Problem]:
    """Yield problems with a Model gateway, or problems that a Model gateway causes."""
    keys = gateway.spec.auth and gateway.spec.auth.api_key and gateway.spec.auth.api_key.secret_selector
    yield from _impossible(gateway.spec.service_selector, "spec.serviceSelector")
    yield from _impossible(keys, "spec.auth.apiKey.secretSelector")
    yield from _gateway_twice(gateway, fleet)
    yield from _gateway_services(gateway, fleet)
    yield from _gateway_keys(gateway, fleet)
    yield from _gateway_encryption(gateway)
    yield from _gateway_superseded(gateway, fleet)


def impossible_labels(selector: Mapping[str, str], path: str) -> Iterator[Problem]:
    """Yield a label of a selector that no object can have."""
    key, wrong = impossible_label(selector)
    if wrong:
        message = f"selects nothing, as no object can have such a label: {wrong}"
        yield Problem(message, field_path(path, key), hint="Write a label that the objects have")


def _impossible(selector: LabelSelector | None, path: str) -> Iterator[Problem]:
    if selector:
        yield from impossible_labels(selector.match_labels, f"{path}.matchLabels")


def _gateway_twice(gateway: Any, fleet: Fleet) -> Iterator[Problem]:
    """Yield gateways of one cluster. All of them have the error, so that the existing gateway can be frozen."""
    name = gateway.spec.cluster_name
    models = [candidate for candidate in fleet.of_kind(_GATEWAY) if candidate.mode == gateway.mode == "Model"]
    other_names = [
        candidate.name for candidate in models if candidate.spec.cluster_name == name and candidate.name != gateway.name
    ]
    if other_names:
        message = f"is the cluster of InferenceGateway {some(sorted(other_names))} too, and a cluster has one gateway"
        yield Problem(message, "spec.clusterName", short(name), "Name another cluster, or remove one of the gateways")


def _gateway_services(gateway: InferenceGateway, fleet: Fleet) -> Iterator[Problem]:
    """Yield a gateway that serves nothing."""
    selector = gateway.spec.service_selector
    if not selector or any(impossible_label(selector.match_labels)):
        return
    if gateway.name in fleet.serving.idle and fleet.complete(_SERVICE):
        labels = {pair for service in fleet.of_kind(_SERVICE) for pair in service.labels.items()}
        hint = f"Labels of ModelServices are {_pairs(labels)}" if labels else "No ModelService has labels"
        selector_text = _pairs(selector.match_labels.items())
        path = "spec.serviceSelector.matchLabels"
        yield warning("matches no ModelService: the gateway serves none", path, hint, selector_text)


def _gateway_keys(gateway: InferenceGateway, fleet: Fleet) -> Iterator[Problem]:
    """Yield a gateway that lets all clients use the paid API keys of endpoints."""
    if gateway.mode != "Model" or gateway.spec.auth is not None or fleet.unknown(_POLICY):
        return
    # If a policy selects a service, a gateway without authentication rejects all requests to the service.
    services = [service for service in fleet.of_kind(_SERVICE) if not fleet.serving.selection.policies(service)]
    gateway_index = ServingIndex([gateway], services)
    keyed = [
        endpoint
        for endpoint in fleet.of_kind("ModelEndpoint")
        if endpoint.spec.credential and not model_mode_obstacle(endpoint)
    ]
    exposed = [
        endpoint.name for endpoint in keyed if gateway_index.find(endpoint.namespace, endpoint.labels, placed=True)
    ]
    if exposed:
        message = f"has no auth, and sends the keys of ModelEndpoint {listed(exposed)}: whoever reaches it spends them"
        yield warning(message, "spec", "Add auth, or serve only ModelServices without such endpoints")


def _gateway_encryption(gateway: InferenceGateway) -> Iterator[Problem]:
    """Yield a gateway that receives credentials of clients without encryption."""
    auth = gateway.spec.auth
    if gateway.mode == "Model" and auth and gateway.spec.tls is None:
        credentials = " and ".join(name for name, source in (("keys", auth.api_key), ("tokens", auth.jwt)) if source)
        message = f"makes clients send their {credentials} unencrypted, because the gateway has no tls"
        hint = "Set spec.tls.certificateRefs. If a proxy in front of the gateway terminates TLS, ignore this warning"
        yield warning(message, "spec.auth", hint)


def _gateway_superseded(gateway: Any, fleet: Fleet) -> Iterator[Problem]:
    """Yield a gateway without authentication, if another gateway requires authentication for the services."""
    guarded = [other_gateway.name for other_gateway in fleet.serving.gateways if other_gateway.spec.auth is not None]
    message = f"asks callers for no key, unlike InferenceGateway {some(guarded, 3)}: whoever reaches it may call "
    if gateway.mode == "Model" and gateway.spec.auth is None and guarded:
        message += "all ModelServices "
        yield warning(f"{message}that it serves and no CallerPolicy selects", "spec", "Add auth")
    if gateway.is_of_control_cluster and guarded:
        hint = "Remove it once all clients have moved to the other gateway"
        yield warning(f"{message}every ModelService", "spec.backend", hint)


def service_routes(service: Any, fleet: Fleet) -> Iterator[Problem]:
    """Yield fields of a service that Model gateways do not support, and fields that have no effect at any gateway."""
    serving = fleet.serving.gateways_of(service)
    count = len(service.spec.endpoints)
    if serving and count > MOST_ENTRIES:
        message = f"has {count} items, and InferenceGateway {serving[0].name}, in mode Model, takes {MOST_ENTRIES}"
        hint = "Divide it into several ModelServices, or select more endpoints with each item"
        yield Problem(message, "spec.endpoints", hint=hint)
    # An idle gateway is probably meant for this service.
    if service.spec.timeouts is not None and not serving and fleet.complete(_GATEWAY) and not fleet.serving.idle:
        hint = "Add a gateway in mode Model that serves this service, or remove it"
        yield warning("has no effect: gateways in mode Model have time-outs", "spec.timeouts", hint)
    if serving:
        yield from _idle_timeout(service)


def endpoints_elsewhere(service: ModelService, selector: Mapping[str, str], fleet: Fleet) -> str:
    """Return the hint for a selector that matches no endpoint in the namespace of a service of a Model gateway.

    The hint names the namespaces of endpoints with these labels. It is empty without such endpoints and for other
    services.
    """
    if not fleet.serving.gateways_of(service):
        return ""
    required_labels = {name: value for name, value in selector.items() if name not in _AFTER_PLACEMENT}.items()
    namespaces = {
        endpoint.namespace
        for endpoint in fleet.of_kind("ModelEndpoint")
        if required_labels and required_labels <= endpoint.labels.items()
    }
    for deployment in fleet.of_kind("ModelDeployment"):
        if required_labels and required_labels <= labels_of_replicas(deployment).items():
            namespaces.add(deployment.namespace)
    where = some(sorted(namespaces))
    hint = f"Endpoints with these labels are in namespace {where}: a ModelService selects those of its own"
    return hint if namespaces else ""


def labels_of_replicas(deployment: Any) -> Mapping[str, str]:
    """Return the labels of a deployment's replicas that are known before they are placed."""
    metadata = deployment.spec.template.metadata
    return {**((metadata.labels if metadata else None) or {}), DEPLOYMENT_LABEL: deployment.name}


def _idle_timeout(service: ModelService) -> Iterator[Problem]:
    """Yield an idle timeout that never expires because the timeout for the whole request is shorter."""
    limits = service.spec.timeouts
    idle, request = (limits.idle, limits.request) if limits else (None, None)
    request_nanos = parse_duration(request or REQUEST_TIMEOUT).nanos
    if idle and 0 < request_nanos < parse_duration(idle).nanos:
        end = f"timeouts.request ends it after {request}"
        message = end if request else f"without timeouts.request it ends after {REQUEST_TIMEOUT}"
        hint = "Write less than that, or raise timeouts.request (0s is no limit)"
        yield warning(f"is longer than a request may take: {message}", "spec.timeouts.idle", hint, short(idle))


def model_endpoint(endpoint: Any, fleet: Fleet) -> Iterator[Problem]:
    """Yield unintended effects of an endpoint at Model gateways."""
    yield from _endpoint_credential(endpoint, fleet)
    yield from _endpoint_usable(endpoint, fleet)
    yield from _endpoint_schema(endpoint, fleet)
    yield from _endpoint_name_of_model(endpoint, fleet)


def _endpoint_credential(endpoint: ModelEndpoint, fleet: Fleet) -> Iterator[Problem]:
    """Yield a credential without a value: the backend would be called without its key."""
    if endpoint.spec.lacks_credential and fleet.serving.gateways:
        hint = "Write apiKey, or remove it for a backend that asks for no key"
        yield Problem("has no value", "spec.credential", hint=hint)


def _endpoint_usable(endpoint: Any, fleet: Fleet) -> Iterator[Problem]:
    """Yield the reason why a Model gateway does not use an endpoint of its services."""
    # An endpoint that no gateway can use is another problem.
    obstacle = None if endpoint_problem(endpoint) else model_mode_obstacle(endpoint)
    serving = fleet.serving.find(endpoint.namespace, endpoint.labels, placed=True) if obstacle else None
    if obstacle and serving:
        reason, _colon, hint = obstacle.reason.rpartition(": ")
        message = f"is not usable by InferenceGateway {serving.gateway.name}: {reason}"
        yield warning(message, f"spec.{obstacle.field}", capitalized(hint))


def _endpoint_schema(endpoint: ModelEndpoint, fleet: Fleet) -> Iterator[Problem]:
    """Yield an endpoint without the OpenAI API, in a service with other endpoints that have this API."""
    if endpoint.spec.schema_name == OPENAI or model_mode_obstacle(endpoint):
        return
    services = fleet.serving.beside_openai(endpoint.namespace, endpoint.labels)
    if services:
        of = f"ModelService {some(services, 3)}"
        message = f"is not what other endpoints of {of} speak: clients of OpenAI's API get 400 from it"
        yield warning(message, "spec.api.schema", "Give it a ModelService of its own", endpoint.spec.schema_name)


def _endpoint_name_of_model(endpoint: ModelEndpoint, fleet: Fleet) -> Iterator[Problem]:
    """Yield a provider that receives the name of a service instead of its own name of the model."""
    spec = endpoint.spec
    is_provider = spec.credential is not None and spec.backend_url.lower().startswith("https://")
    if spec.model is not None or not is_provider or model_mode_obstacle(endpoint):
        return
    serving = fleet.serving.find(endpoint.namespace, endpoint.labels, placed=True)
    if serving:
        message = f"has no model: InferenceGateway {serving.gateway.name} asks the backend for "
        message += f"{serving.service.model_name}, a name that it hardly knows"
        yield warning(message, "spec", "Add model, the backend's own name of the model")


def engine_namespace(resource: Any, fleet: Fleet) -> Iterator[Problem]:
    """Yield a namespace with engine paths that are also API paths of Model gateways."""
    if resource.namespace in _API_PREFIXES and fleet.serving.gateways:
        message = "is a path of the API of gateways in mode Model: engines in it would get requests for other models"
        yield Problem(message, "metadata.namespace", resource.namespace, "Choose another namespace")


def deployment_served_name(deployment: Any, fleet: Fleet) -> Iterator[Problem]:
    """Yield engines that cannot serve the requests of Model gateways.

    The engines have another served model name, require an API key, or do not report the token usage for budgets.
    """
    serving = fleet.serving.find(deployment.namespace, labels_of_replicas(deployment), placed=False)
    if serving is None:
        return
    model = f"{deployment.namespace}/{deployment.name}"
    for engine_index, engine in enumerate(deployment.spec.template.spec.engines):
        for member_index, member in enumerate(engine.members):
            if member.role != constants.WORKER:
                path = f"spec.template.spec.engines[{engine_index}].members[{member_index}].template.spec.containers[0]"
                container = member.template.spec.containers[0]
                line = CommandLine.of(container, {_VARIABLE: model})
                yield from _own_settings(container, line, serving, path)
                yield from _uncounted_streams(line, serving, fleet, path)
                yield from _served_name(container, line, model, serving, path)
                yield from _unknown_server(engine, container, line, model, serving, path)


def _own_settings(container: Any, line: CommandLine, serving: Serving, path: str) -> Iterator[Problem]:
    """Yield a variable that would hide the variable of the fleet, and API keys. Messages do not repeat keys."""
    key = line.server.key if line.server else Setting()
    is_in_script = line.script and any(flag in line.script.replace("_", "-") for flag in key.flags)
    locations = [line.element(key.flags)] if line.has(key.flags) or is_in_script else []
    for index, variable in enumerate(container.env or ()):
        if variable.name == _VARIABLE:
            message = "is set by the fleet, to the name that gateways in mode Model ask for"
            yield Problem(message, f"{path}.env[{index}].name", _VARIABLE, "Remove it, or give it another name")
        elif variable.name == key.variable and (variable.value or variable.value_from):
            locations.append(f"env[{index}]")
    for location in locations:
        message = f"makes the engine ask for a key: InferenceGateway {serving.gateway.name} passes on none, and gets "
        hint = "Remove it: the gateway asks callers for keys"
        yield warning(f"{message}401 for every request", f"{path}.{location}", hint)


def _uncounted_streams(line: CommandLine, serving: Serving, fleet: Fleet, path: str) -> Iterator[Problem]:
    """Yield an engine that does not report the token usage of completion streams, if a budget counts tokens."""
    flag = line.server.stream_usage if line.server else ""
    if not flag or line.script or line.has((flag,)):
        return
    policies = fleet.serving.selection.policies(serving.service) if serving.gateway.spec.auth else ()
    units = {policy.name: {budget.unit for budget in policy.spec.budgets or ()} for policy in policies}
    # A request budget limits these streams too.
    names = [name for name, of_policy in units.items() if of_policy and "Requests" not in of_policy]
    if names:
        message = f"reports no tokens of streams of /v1/completions, so budgets of CallerPolicy {some(names)} do not "
        hint = f"Add {flag}, which replaces the pods, or add a request budget"
        yield warning(f"{message}count them", f"{path}.{line.element()}", hint)


def _served_name(container: Any, line: CommandLine, model: str, serving: Serving, path: str) -> Iterator[Problem]:
    """Yield served model names without the name in requests of the gateway."""
    served = served_names(line)
    # Scripts that are not parsed have a warning of their own.
    if served is None or served.in_script:
        return
    location = f"{path}.{line.element((_FLAG,))}"
    consequence = f"InferenceGateway {serving.gateway.name} asks for {model}, and gets 404 for every request"
    write = f"Write {_FLAG}=$({_VARIABLE})"
    if served.rejected:
        message = f"gives SGLang {served.rejected} names with {_FLAG}, and it takes one: it does not start"
        yield Problem(message, location, hint=f"{write} only")
    elif model in served.names or (served.can_be_added and not served.names):
        return
    elif served.in_file:
        message = f"reads flags from a file, whose content is unknown: unless it has that name, {consequence}"
        hint = f"Write served-model-name: {model} into it, or {_FLAG}=$({_VARIABLE}) here, which overrides it"
        yield warning(message, f"{path}.{line.element((_CONFIG,))}", hint)
    elif served.unknown:
        message = f"takes {_FLAG} from {_sources(served.unknown)}, unknown before the pod runs: if it is not {model}, "
        yield warning(f"{message}{consequence}", location, f"{write}, a variable that the fleet sets")
    elif served.unknown_flags:
        message = f"may take {_FLAG} from {_sources(served.unknown_flags)}, unknown before the pod runs: unless it is "
        hint = f"{write} after it, a variable that the fleet sets"
        yield warning(f"{message}{model} there, {consequence}", f"{path}.{line.element()}", hint)
    elif served.names:
        # Messages do not repeat values of `env`.
        text = "\n".join((*(container.args or ()), *(container.command or ())))
        is_written = all(name in text for name in served.names)
        message = f"has another {_FLAG}{'' if is_written else ', by variables'}: {consequence}"
        value = short(" ".join(served.names)) if is_written else ""
        yield Problem(message, location, value, f"{write}, a variable that the fleet sets")
    else:
        hint = f'Add {_FLAG}="${_VARIABLE}" to the command that starts the engine; the fleet sets the variable'
        yield Problem(f"sets no {_FLAG}: {consequence}", location, hint=hint)


def _unknown_server(
    engine: Any, container: Any, line: CommandLine, model: str, serving: Serving, path: str
) -> Iterator[Problem]:
    """Yield an engine with an unknown inference server, and the settings that the manifest does not specify."""
    # Another check warns about scripts that start servers of the table.
    if line.server or servers_in(line.script):
        return
    texts = (
        *(container.command or ()),
        *(container.args or ()),
        *(variable.value or "" for variable in container.env or ()),
    )
    is_named = any(_VARIABLE in text or model in text for text in texts) or served_names(line) is not None
    has_port = engine.port is not None or any("--port" in text for text in texts)
    # The composed startup probe requests the health path too.
    has_health = engine.health_path is not None or (container.readiness_probe and container.startup_probe)
    settings = [name for name, is_set in (("port", has_port), ("healthPath", has_health)) if not is_set]
    unchecked = ["health path" if name == "healthPath" else name for name in settings]
    hints = [f"set {' and '.join(settings)} next to members, unless the defaults are right"] if settings else []
    if not is_named:
        unchecked.append("served model name")
        hints.insert(0, f"pass $({_VARIABLE}) to it, because InferenceGateway {serving.gateway.name} asks for {model}")
    if unchecked:
        message = f"starts an unknown server, so no check covers its {some(unchecked)}"
        location, image = (line.element(), "") if line.has_command or line.script else ("image", short(line.image))
        yield warning(message, f"{path}.{location}", capitalized("; ".join(hints)), image)


def _sources(names: Iterable[str]) -> str:
    return some(f"${name}" if name else "a command of the shell" for name in names)


def route_by_hand(_route: Any, _fleet: object) -> Iterator[Problem]:
    """Yield a ModelRoute in manifests."""
    yield warning("has no effect: the fleet makes ModelRoutes of ModelServices by itself", "kind", "Remove it")


def policy_services(policy: CallerPolicy, fleet: Fleet) -> Iterator[Problem]:
    """Yield a policy without services, and a policy for callers that are unknown to all gateways."""
    selector = policy.spec.services
    path = "spec.services.matchLabels" if selector else "spec"
    services = fleet.serving.selection.services(policy)
    is_possible = not selector or not any(impossible_label(selector.match_labels))
    if not services and is_possible and not fleet.unknown(_SERVICE):
        yield _selects_nothing(policy, fleet, path)
    if not services or not fleet.complete(_GATEWAY):
        return
    serving = {gateway.name: gateway for service in services for gateway in fleet.serving.gateways_of(service)}
    paths = [candidate.name for candidate in fleet.of_kind(_GATEWAY) if candidate.is_of_control_cluster]
    # Gateways in mode Path beside one with auth have a warning of their own.
    is_guarded = any(gateway.spec.auth for gateway in fleet.serving.gateways)
    path_note = "" if is_guarded or not paths else f"; whoever reaches InferenceGateway {some(paths)} may call them"
    if not serving:
        hint = "Add a gateway in mode Model, with auth, that serves them"
        message = f"has no effect: no gateway in mode Model serves the ModelServices{path_note}"
        yield warning(message, path, hint)
    for name, gateway in sorted(serving.items()):
        if gateway.spec.auth is None:
            message = f"selects services of InferenceGateway {name}, which has no auth: it refuses all their callers"
            yield warning(f"{message}{path_note}", path, f"Add auth to InferenceGateway {name}")
    yield from _overflows(policy, services)
    namespace_budgets = fleet.serving.budgets(policy.namespace)
    yield from _crowded(policy, namespace_budgets)
    yield from _tokens(policy, services, serving.values(), namespace_budgets.rights)
    tokens = next(
        (candidate.spec.auth.jwt for candidate in serving.values() if candidate.spec.auth and candidate.spec.auth.jwt),
        None,
    )
    policy_rights = rights(policy, (), services, tokens)
    divided = divided_budgets(policy_rights, namespace_budgets.rights, {service.name for service in services})
    for index, budget in enumerate(policy.spec.budgets or ()):
        if budget in divided:
            yield warning(DIVIDED, f"spec.budgets[{index}].scope", capitalized(UNDIVIDED), budget.scope)


def _tokens(
    policy: CallerPolicy,
    services: Sequence[ModelService],
    serving: Iterable[InferenceGateway],
    namespace_rights: NamespaceRights,
) -> Iterator[Problem]:
    """Yield clients with tokens that are unknown to gateways, and budgets of groups that would include others."""
    accepted = {gateway.name: gateway.spec.auth.jwt for gateway in serving if gateway.spec.auth}
    for field, jwt_field in (("subjects", "jwt"), ("groups", "jwt.groupsClaim")):
        missing = [
            name for name, jwt in sorted(accepted.items()) if not (jwt and (field == "subjects" or jwt.groups_claim))
        ]
        if getattr(policy.spec, field) and missing:
            message = f"has no effect at InferenceGateway {some(missing)}, which has no spec.auth.{jwt_field}"
            yield warning(message, f"spec.{field}", f"Add auth.{jwt_field} to it, or remove {field}")
    if policy.spec.groups and policy.spec.budgets and namespace_rights.are_shared(service.name for service in services):
        other_policies = {
            policy_rights.policy.name for service in services for policy_rights in namespace_rights.to(service.name)
        } - {policy.name}
        message = f"would count callers of CallerPolicy {listed(sorted(other_policies))} too: gateways count by headers"
        hint = "Give members of groups services of their own, or name them in subjects"
        yield Problem(f"{message}, and groups are in none", "spec.budgets", hint=hint)


def _selects_nothing(policy: CallerPolicy, fleet: Fleet, path: str) -> Problem:
    """Return the problem of a policy without services.

    The problem includes services of other namespaces that the policy was probably meant for.
    """
    selector = policy.spec.services
    message = f"matches no ModelService in namespace {policy.namespace}"
    if selector is None:
        return warning(message, path, "Write the policy into the namespace of the ModelServices that it is for")
    matching = [service for service in fleet.of_kind(_SERVICE) if selector.matches(service.labels)]
    namespaces = sorted({service.namespace for service in fleet.of_kind(_SERVICE)})
    if not matching and namespaces and policy.namespace not in namespaces:
        hint = f"ModelServices are in namespace {nearest(policy.namespace, namespaces) or some(namespaces)}"
        return warning(message, path, hint)
    if not matching:
        local_services = [service for service in fleet.of_kind(_SERVICE) if service.namespace == policy.namespace]
        labels = {pair for service in local_services for pair in service.labels.items()}
        hint = f"Labels of ModelServices there are {_pairs(labels)}" if labels else "No ModelService there has labels"
        return warning(f"{message}{_open_to_all(local_services, fleet)}", path, hint)
    message += (
        f", and holds in no other one: those with these labels are {listed(service.model_name for service in matching)}"
    )
    message += _open_to_all(matching, fleet)
    return warning(
        message, path, f"Write the policy into namespace {listed(service.namespace for service in matching)}"
    )


def _open_to_all(services: Iterable[ModelService], fleet: Fleet) -> str:
    """Return the end of a message about a policy that selects nothing. It lists the services without any policy."""
    unrestricted = [service.model_name for service in services if not fleet.serving.selection.policies(service)]
    return (
        "" if not unrestricted or fleet.unknown(_POLICY) else f"; every caller with a key may call {some(unrestricted)}"
    )


def _crowded(policy: CallerPolicy, namespace_budgets: Budgets) -> Iterator[Problem]:
    """Yield the budgets of a policy that are too many for one object, or that cover too many services for one rule.

    Only the first policy with budgets that are too many reports them.
    """
    excess = namespace_budgets.too_many_rules.get(policy.name)
    if excess:
        yield Problem(excess.message, "spec.budgets", hint=capitalized(FEWER_RULES))
    for index, budget in enumerate(policy.spec.budgets or ()):
        if (policy.name, budget.name) in namespace_budgets.divided:
            hint = capitalized(UNDIVIDED_SERVICES)
            yield warning(DIVIDED_SERVICES, f"spec.budgets[{index}]", hint, budget.name)


def _unresolved(services: Iterable[ModelService], gateway: InferenceGateway) -> list[Route]:
    nothing = Resolution((), None)
    return [Route(service, gateway, nothing, {}) for service in services if gateway.serves(service.labels)]


def policy_callers(policy: CallerPolicy, fleet: Fleet) -> Iterator[Problem]:
    """Yield problems with the callers of a policy.

    The problems are names of next keys, a group in addition to every caller, and labels that select nothing. Budgets
    without effect and callers of no gateway are problems too.
    """
    if not any(fleet.of_kind(_GATEWAY)) and not fleet.unknown(_GATEWAY):
        message = "has no effect without an InferenceGateway in mode Model, and the manifests have none"
        yield warning(
            message,
            "spec",
            "Add one with auth that serves the ModelServices, unless the control cluster has it; or remove the policy",
        )
    yield from _impossible(policy.spec.services, "spec.services")
    yield from _impossible(policy.spec.caller_selector, "spec.callerSelector")
    if policy.spec.caller_selector and policy.is_for_everyone:
        message = f"has no effect: '{EVERY_CALLER}' in callers is every caller that has a key"
        yield warning(message, "spec.callerSelector", f"Remove it, or '{EVERY_CALLER}'")
    yield from _spent_with_others(policy.spec.budgets or ())
    for index, caller in enumerate(policy.spec.callers or ()):
        if is_key(caller.name):
            yield pasted_key(f"spec.callers[{index}].name")
        if caller.name.endswith(NEXT_SUFFIX):
            base_name = caller_of(caller.name)
            message = f"is the name of a next key, and not of a caller: names must not end in {NEXT_SUFFIX}"
            hint = (
                f"Write {base_name}, whose keys are both valid while they are rotated" if base_name else "Name a caller"
            )
            yield Problem(message, f"spec.callers[{index}].name", short(caller.name), hint)


def _spent_with_others(budgets: Sequence[Budget]) -> Iterator[Problem]:
    """Yield budgets that are never used up before another budget.

    The other budget has at most the same quantity, in a window with at least the same length. Full windows of one
    length are inside the windows of the next length.
    """
    for index, budget in enumerate(budgets):
        for position, peer in enumerate(budgets):
            is_alike = _alike(budget) == _alike(peer) and _WINDOWS.index(budget.per) <= _WINDOWS.index(peer.per)
            is_same = (budget.quantity, budget.per) == (peer.quantity, peer.per)
            if is_alike and peer.quantity <= budget.quantity and (position < index if is_same else position != index):
                message = f"is never spent before budget {peer.name}, which has {peer.quantity} for each {peer.per}"
                hint = "Lower it, or raise the other one, or remove one of them"
                field = "amount" if budget.amount else "limit"
                yield warning(message, f"spec.budgets[{index}].{field}", hint, str(budget.quantity))
                break


def _alike(budget: Budget) -> tuple[str, str, str]:
    return budget.unit, budget.scope, budget.when_spent


def _overflows(policy: CallerPolicy, services: Sequence[ModelService]) -> Iterator[Problem]:
    """Yield budgets that send requests to the next priority where a service has one only."""
    single = [service.name for service in services if len({entry.priority for entry in service.spec.endpoints}) == 1]
    for index, budget in enumerate(policy.spec.budgets or ()):
        if budget.when_spent == "Overflow" and single:
            message = f"has no next priority to send requests to in ModelService {some(single, 3)}: they are refused"
            hint = "Give the endpoints for them a higher priority there, or write Refuse"
            yield warning(message, f"spec.budgets[{index}].whenSpent", hint, budget.when_spent)


def _pairs(labels: Iterable[tuple[str, str]]) -> str:
    return some(f"{key}: {value}" for key, value in sorted(labels))
