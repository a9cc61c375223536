# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The DRA device language: devices, quantities, versions, and CEL selectors with Kubernetes' verdict.

`Device.from_wire` reads a device, `compile_selector(text).evaluate(device)` gives a `Verdict`, and `explain` says why
a selector does not match. The yardstick is k8s.io/dynamic-resource-allocation/cel of Kubernetes 1.36 with the feature
DRAConsumableCapacity (so `device.allowMultipleAllocations` exists, and is false) and without
DRAListTypeAttributes. Its verdicts are recorded in tests/data/cel; tests/oracle/cel is the program that gives them.

Known differences from Kubernetes, all of them to the careful side or out of the way of what selectors are for:

- Messages (`google.protobuf.Duration{...}`) are refused.
- Lists and maps cannot be keys of a map.
- `optMap` of a body that gives an optional keeps both layers, where Kubernetes loses one.
- Regular expressions know no scripts (`\\p{Greek}`), take at most 200 nested groups and 20,000 steps.
- Time zones are UTC or an offset; names such as `Europe/Paris` are refused when they are read.
- Quantities have exponents of at most 999; `asApproximateFloat` may differ in the last digit.
- Costs are close to Kubernetes', not the same. Work that Kubernetes charges too little for (joining lists, comparing
  lists that share parts, states of a regular expression) is charged here, so an evaluation may be stopped earlier.
- Maps are read in the order they were written in, where Kubernetes has none.
"""

LEAST_KUBERNETES = (1, 34)
"""The first version of Kubernetes whose pods claim devices by resource.k8s.io/v1."""
