# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Names of a device selector: variables, types, and functions with their overloads.

The environment is the environment of k8s.io/dynamic-resource-allocation/cel in Kubernetes 1.36, based on
k8s.io/apiserver/pkg/cel/environment: the standard library, optionals, strings (version 2), lists (version 3), sets,
two-variable comprehensions, bindings, and Kubernetes' regex, lists, quantity, semver, url, ip, cidr, and format.
The libraries for admission (`authorizer`) also declare functions, but provide no value for calls. They are excluded.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from . import types as t


class Overload(NamedTuple):
    """Signature of a function. The receiver of a method is its first argument."""

    args: tuple[t.Type, ...]
    result: t.Type
    variables: tuple[t.Type, ...]


_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_ORDERINGS = [f"{kind},{kind}->bool" for kind in ("bool", "string", "bytes", "timestamp", "duration")] + [
    f"{kind},{second_kind}->bool" for kind in ("int", "uint", "double") for second_kind in ("int", "uint", "double")
]
_TIMESTAMP_PART = "timestamp->int timestamp,string->int"
_TIME_PART = f"{_TIMESTAMP_PART} duration->int"

# Signatures: arguments, an arrow, and the result. Single capitals (A, B, K, V) are type variables.
_GLOBAL = {
    "_?_:_": "bool,A,A->A",
    "!_": "bool->bool",
    "_==_": "A,A->bool",
    "_!=_": "A,A->bool",
    "_+_": "bytes,bytes->bytes double,double->double duration,duration->duration duration,timestamp->timestamp"
    " timestamp,duration->timestamp int,int->int list<A>,list<A>->list<A> string,string->string uint,uint->uint",
    "_-_": "double,double->double duration,duration->duration int,int->int timestamp,duration->timestamp"
    " timestamp,timestamp->duration uint,uint->uint",
    "_*_": "double,double->double int,int->int uint,uint->uint",
    "_/_": "double,double->double int,int->int uint,uint->uint",
    "_%_": "int,int->int uint,uint->uint",
    "-_": "double->double int->int",
    **dict.fromkeys(("_<_", "_<=_", "_>_", "_>=_"), " ".join(_ORDERINGS)),
    "_[_]": "list<A>,int->A map<A,B>,A->B optional<list<V>>,int->optional<V> optional<map<K,V>>,K->optional<V>",
    "_[?_]": "list<V>,int->optional<V> optional<list<V>>,int->optional<V> map<K,V>,K->optional<V>"
    " optional<map<K,V>>,K->optional<V>",
    "@in": "A,list<A>->bool A,map<A,B>->bool",
    "size": "bytes->int list<A>->int map<A,B>->int string->int",
    "type": "A->type<A>",
    "dyn": "A->dyn",
    "bool": "bool->bool string->bool",
    "bytes": "bytes->bytes string->bytes",
    "double": "double->double int->double string->double uint->double",
    "duration": "duration->duration int->duration string->duration",
    "int": "int->int double->int duration->int string->int timestamp->int uint->int",
    "string": "string->string bool->string bytes->string double->string duration->string int->string"
    " timestamp->string uint->string IP->string CIDR->string",
    "timestamp": "timestamp->timestamp int->timestamp string->timestamp",
    "uint": "uint->uint double->uint int->uint string->uint",
    "matches": "string,string->bool",
    "optional.of": "V->optional<V>",
    "optional.ofNonZeroValue": "V->optional<V>",
    "optional.none": "->optional<V>",
    "optional.unwrap": "list<optional<V>>->list<V>",
    "strings.quote": "string->string",
    "lists.range": "int->list<int>",
    "sets.contains": "list<A>,list<A>->bool",
    "sets.equivalent": "list<A>,list<A>->bool",
    "sets.intersects": "list<A>,list<A>->bool",
    "quantity": "string->Quantity",
    "isQuantity": "string->bool",
    "sign": "Quantity->int",
    "semver": "string->Semver string,bool->Semver",
    "isSemver": "string->bool string,bool->bool",
    "url": "string->URL",
    "isURL": "string->bool",
    "ip": "string->IP",
    "isIP": "string->bool",
    "ip.isCanonical": "string->bool",
    "cidr": "string->CIDR",
    "isCIDR": "string->bool",
    "format.named": "string->optional<Format>",
    **dict.fromkeys(
        (
            f"format.{name}"
            for name in (
                "dns1123Label",
                "dns1123Subdomain",
                "dns1035Label",
                "qualifiedName",
                "dns1123LabelPrefix",
                "dns1123SubdomainPrefix",
                "dns1035LabelPrefix",
                "labelValue",
                "uri",
                "uuid",
                "byte",
                "date",
                "datetime",
            )
        ),
        "->Format",
    ),
}

_MEMBER = {
    "size": _GLOBAL["size"],
    **dict.fromkeys(("contains", "endsWith", "startsWith", "matches"), "string,string->bool"),
    **dict.fromkeys(
        ("getFullYear", "getMonth", "getDayOfYear", "getDate", "getDayOfMonth", "getDayOfWeek"), _TIMESTAMP_PART
    ),
    **dict.fromkeys(("getHours", "getMinutes", "getSeconds", "getMilliseconds"), _TIME_PART),
    "value": "optional<V>->V",
    "hasValue": "optional<V>->bool",
    "or": "optional<V>,optional<V>->optional<V>",
    "orValue": "optional<V>,V->V",
    "first": "list<V>->optional<V>",
    "last": "list<V>->optional<V>",
    "unwrapOpt": "list<optional<V>>->list<V>",
    "charAt": "string,int->string",
    "indexOf": "string,string->int string,string,int->int list<A>,A->int",
    "lastIndexOf": "string,string->int string,string,int->int list<A>,A->int",
    "lowerAscii": "string->string",
    "upperAscii": "string->string",
    "trim": "string->string",
    "replace": "string,string,string->string string,string,string,int->string",
    "split": "string,string->list<string> string,string,int->list<string>",
    "substring": "string,int->string string,int,int->string",
    "format": "string,list<dyn>->string",
    "join": "list<string>->string list<string>,string->string",
    "find": "string,string->string",
    "findAll": "string,string->list<string> string,string,int->list<string>",
    "slice": "list<A>,int,int->list<A>",
    "flatten": "list<list<A>>->list<A> list<dyn>,int->list<dyn>",
    "sort": " ".join(f"list<{kind}>->list<{kind}>" for kind in _COMPARABLE),
    "@sortByAssociatedKeys": " ".join(f"list<A>,list<{kind}>->list<A>" for kind in _COMPARABLE),
    "reverse": "list<A>->list<A>",
    "distinct": "list<A>->list<A>",
    "isSorted": " ".join(f"list<{kind}>->bool" for kind in _COMPARABLE),
    "sum": "list<int>->int list<uint>->uint list<double>->double list<duration>->duration",
    **dict.fromkeys(("min", "max"), " ".join(f"list<{kind}>->{kind}" for kind in _COMPARABLE)),
    **dict.fromkeys(("isGreaterThan", "isLessThan"), "Quantity,Quantity->bool Semver,Semver->bool"),
    "compareTo": "Quantity,Quantity->int Semver,Semver->int",
    "asApproximateFloat": "Quantity->double",
    "asInteger": "Quantity->int",
    "isInteger": "Quantity->bool",
    **dict.fromkeys(("add", "sub"), "Quantity,Quantity->Quantity Quantity,int->Quantity"),
    **dict.fromkeys(("major", "minor", "patch"), "Semver->int"),
    **dict.fromkeys(("getScheme", "getHost", "getHostname", "getPort", "getEscapedPath"), "URL->string"),
    "getQuery": "URL->map<string,list<string>>",
    "family": "IP->int",
    **dict.fromkeys(
        ("isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast"), "IP->bool"
    ),
    "containsIP": "CIDR,string->bool CIDR,IP->bool",
    "containsCIDR": "CIDR,string->bool CIDR,CIDR->bool",
    "ip": "CIDR->IP",
    "prefixLength": "CIDR->int",
    "masked": "CIDR->CIDR",
    "validate": "Format,string->optional<list<string>>",
}

_SIMPLE = {
    "bool": t.BOOL,
    "bytes": t.BYTES,
    "double": t.DOUBLE,
    "int": t.INT,
    "uint": t.UINT,
    "string": t.STRING,
    "dyn": t.DYN,
    "timestamp": t.TIMESTAMP,
    "duration": t.DURATION,
    "Quantity": t.QUANTITY,
    "Semver": t.SEMVER,
    "URL": t.URL,
    "IP": t.IP,
    "CIDR": t.CIDR,
    "Format": t.FORMAT,
}
_PART = re.compile(r"\w+|[<>,]")


def _read_types(text: str) -> tuple[t.Type, ...]:
    """Return the types of a list such as `map<K,V>,int`."""
    stack: list[tuple[str, list[t.Type]]] = [("", [])]
    pieces = _PART.findall(text)
    for index, piece in enumerate(pieces):
        if piece == ">":
            name, params = stack.pop()
            stack[-1][1].append(_composed(name, params))
        elif piece not in "<,":
            if pieces[index + 1 : index + 2] == ["<"]:
                stack.append((piece, []))
            else:
                stack[-1][1].append(_SIMPLE.get(piece) or t.Type("param", piece))
    return tuple(stack[0][1])


def _composed(name: str, params: list[t.Type]) -> t.Type:
    if name == "optional":
        return t.optional_of(params[0])
    return t.Type(name, "", tuple(params))


def _overload(signature: str) -> Overload:
    args, __, result = signature.partition("->")
    names = sorted(set(re.findall(r"\b[A-Z]\b", signature)))
    return Overload(_read_types(args), _read_types(result)[0], tuple(t.Type("param", name) for name in names))


def _table(signatures: dict[str, str]) -> dict[str, tuple[Overload, ...]]:
    return {name: tuple(map(_overload, texts.split())) for name, texts in signatures.items()}


FUNCTIONS = _table(_GLOBAL)
METHODS = _table(_MEMBER)

# A selector has access to one device. Attribute values have no static type (`any`). Unknown domains are empty.
DEVICE_FIELDS = {
    "driver": t.STRING,
    "allowMultipleAllocations": t.BOOL,
    "attributes": t.map_of(t.STRING, t.map_of(t.STRING, t.ANY)),
    "capacity": t.map_of(t.STRING, t.map_of(t.STRING, t.QUANTITY)),
}

TYPE_NAMES = {
    "bool": t.BOOL,
    "bytes": t.BYTES,
    "double": t.DOUBLE,
    "int": t.INT,
    "uint": t.UINT,
    "string": t.STRING,
    "list": t.list_of(t.DYN),
    "map": t.map_of(t.DYN, t.DYN),
    "null_type": t.NULL,
    "type": t.Type("type"),
    "optional_type": t.optional_of(t.DYN),
    "google.protobuf.Timestamp": t.TIMESTAMP,
    "google.protobuf.Duration": t.DURATION,
    "net.IP": t.IP,
    "net.CIDR": t.CIDR,
}
