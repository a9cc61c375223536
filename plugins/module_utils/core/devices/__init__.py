# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The DRA device language: devices, quantities, versions, and CEL selectors with the verdict of Kubernetes.

`Device.from_wire` reads a device, `compile_selector(text).evaluate(device)` returns a `Verdict`, and `explain` returns
the reason why a selector does not match. The reference is k8s.io/dynamic-resource-allocation/cel of Kubernetes 1.36
with the feature DRAConsumableCapacity (so `device.allowMultipleAllocations` exists, and is false) and without
DRAListTypeAttributes. tests/data/cel contains its verdicts. The program in tests/oracle/cel generates them.

Known differences from Kubernetes. They are stricter than Kubernetes, or irrelevant to the purpose of selectors:

- Messages (`google.protobuf.Duration{...}`) are rejected.
- Lists and maps cannot be keys of a map.
- `optMap` keeps both layers if its body returns an optional. Kubernetes loses one layer.
- Regular expressions do not support scripts (`\\p{Greek}`). They have at most 200 nested groups and 20,000 steps.
- Time zones are UTC or an offset. Names such as `Europe/Paris` are rejected when they are read.
- Quantities have exponents of at most 999. The last digit of `asApproximateFloat` might differ.
- Costs are similar to the costs of Kubernetes, but not equal. Some work that Kubernetes undercharges (joins of lists,
  comparisons of lists with shared parts, states of a regular expression) has a higher cost here. Therefore, an
  evaluation might stop earlier.
- The order of a map is the order of its source text. In Kubernetes it is undefined.
"""

LEAST_KUBERNETES = (1, 34)
"""The first version of Kubernetes that supports device claims through resource.k8s.io/v1."""
