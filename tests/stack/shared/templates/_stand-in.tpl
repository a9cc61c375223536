{{/*
What the stand-in charts have in common. Values below `global.test` are for tests; see README.md.
*/}}

{{/* The name of most objects, from the names of release and chart as in the charts that `helm create` makes. */}}
{{- define "stand-in.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $whole := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $whole .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "stand-in.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Annotations of a hook. Arguments: hook (empty for what is no hook), policy, weight. */}}
{{- define "stand-in.hook" -}}
{{- with .hook }}
annotations:
  helm.sh/hook: {{ . }}
  {{- with $.policy }}
  helm.sh/hook-delete-policy: {{ . }}
  {{- end }}
  {{- with $.weight }}
  helm.sh/hook-weight: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Annotations of pods that decide what becomes of them. Arguments: root, component, hook. */}}
{{- define "stand-in.fate" -}}
{{- $test := (.root.Values.global).test | default dict -}}
{{- if ternary (has .component $test.only) (empty .hook) (not (empty $test.only)) }}
{{- with $test.fail }}
test.modelplane.ai/fate: {{ . }}
{{- end }}
{{- with $test.delay }}
test.modelplane.ai/delay: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* repository:tag of an image; the tag is over the version of the application. Arguments: root, image, prefix. */}}
{{- define "stand-in.image" -}}
{{ .image.repository }}:{{ .image.tag | default (printf "%s%s" (default "" .prefix) .root.Chart.AppVersion) }}
{{- end }}

{{/*
A Deployment, StatefulSet, DaemonSet or Job with the container `component`.
Arguments: root, kind, name, component, image; optional: containers (name -> image of more), initContainers, replicas,
secrets, pod (more of its spec), env, resources, account, ttl, labels (more of the pod), and those of stand-in.hook.
*/}}
{{- define "stand-in.workload" -}}
{{- $job := eq .kind "Job" -}}
apiVersion: {{ ternary "batch/v1" "apps/v1" $job }}
kind: {{ .kind }}
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "stand-in.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
  {{- include "stand-in.hook" . | nindent 2 }}
spec:
  {{- if $job }}
  backoffLimit: 1
  {{- with .ttl }}
  ttlSecondsAfterFinished: {{ . }}
  {{- end }}
  {{- else }}
  {{- if ne .kind "DaemonSet" }}
  replicas: {{ .replicas | default 1 }}
  {{- end }}
  selector:
    matchLabels:
      app.kubernetes.io/instance: {{ .root.Release.Name }}
      app.kubernetes.io/component: {{ .component }}
  {{- end }}
  template:
    metadata:
      labels:
        {{- include "stand-in.labels" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
        {{- with .labels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with include "stand-in.fate" . | trim }}
      annotations:
        {{- . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ .account | default "default" }}
      {{- with .secrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- range $key, $value := .pod }}
      {{- with $value }}
      {{ $key }}:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
      {{- with .initContainers }}
      initContainers:
        {{- range $name, $image := . }}
        - name: {{ $name }}
          image: {{ $image | quote }}
        {{- end }}
      {{- end }}
      containers:
        - name: {{ .component }}
          image: {{ .image | quote }}
          {{- with .env }}
          env:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with .resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
        {{- range $name, $image := .containers }}
        - name: {{ $name }}
          image: {{ $image | quote }}
        {{- end }}
      {{- if $job }}
      restartPolicy: Never
      {{- end }}
{{- end }}

{{/* A ServiceAccount that may do `rules`. Arguments: root, name, rules, namespaced, and those of stand-in.hook. */}}
{{- define "stand-in.account" -}}
{{- $role := ternary "Role" "ClusterRole" (default false .namespaced) -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "stand-in.labels" .root | nindent 4 }}
  {{- include "stand-in.hook" . | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $role }}
metadata:
  name: {{ .name }}
  {{- if .namespaced }}
  namespace: {{ .root.Release.Namespace }}
  {{- end }}
  labels:
    {{- include "stand-in.labels" .root | nindent 4 }}
  {{- include "stand-in.hook" . | nindent 2 }}
rules:
  {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $role }}Binding
metadata:
  name: {{ .name }}
  {{- if .namespaced }}
  namespace: {{ .root.Release.Namespace }}
  {{- end }}
  labels:
    {{- include "stand-in.labels" .root | nindent 4 }}
  {{- include "stand-in.hook" . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $role }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .name }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* A Service. Arguments: root, name, component, ports (name -> number), type. */}}
{{- define "stand-in.service" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "stand-in.labels" .root | nindent 4 }}
spec:
  type: {{ .type | default "ClusterIP" }}
  selector:
    app.kubernetes.io/instance: {{ .root.Release.Name }}
    app.kubernetes.io/component: {{ .component }}
  ports:
    {{- range $name, $number := .ports }}
    - name: {{ $name }}
      port: {{ $number }}
    {{- end }}
{{- end }}

{{/*
A webhook configuration. Arguments: root, kind (Mutating or Validating), name, service, port, and hooks: a list of
{name, path, group, versions, resources, operations, objectSelector, namespaceSelector}.
*/}}
{{- define "stand-in.webhooks" -}}
{{- $test := ((.root.Values.global).test).webhooks | default dict -}}
apiVersion: admissionregistration.k8s.io/v1
kind: {{ .kind }}WebhookConfiguration
metadata:
  name: {{ .name }}
  labels:
    {{- include "stand-in.labels" .root | nindent 4 }}
webhooks:
  {{- range .hooks }}
  - name: {{ .name }}
    admissionReviewVersions: [v1]
    sideEffects: None
    timeoutSeconds: {{ $test.timeoutSeconds | default 1 }}
    failurePolicy: {{ $test.failurePolicy | default "Ignore" }}
    clientConfig:
      {{- if $test.url }}
      url: {{ $test.url }}{{ .path }}
      {{- else }}
      service:
        name: {{ $.service }}
        namespace: {{ $.root.Release.Namespace }}
        path: {{ .path }}
        port: {{ $.port | default 443 }}
      {{- end }}
      {{- with $test.caBundle }}
      caBundle: {{ . }}
      {{- end }}
    {{- with .objectSelector }}
    objectSelector:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .namespaceSelector }}
    namespaceSelector:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    rules:
      - apiGroups: [{{ .group | quote }}]
        apiVersions: {{ .versions | toJson }}
        resources: {{ .resources | toJson }}
        operations: {{ .operations | default (list "CREATE" "UPDATE") | toJson }}
  {{- end }}
{{- end }}

{{/* The CustomResourceDefinitions of a chart that has them as templates. Arguments: root, keep. */}}
{{- define "stand-in.definitions" -}}
{{- range .root.Files.Get "definitions.json" | fromJsonArray }}
{{- if $.keep }}
{{- $_ := set .metadata.annotations "helm.sh/resource-policy" "keep" }}
{{- end }}
---
{{ toYaml . }}
{{- end }}
{{- end }}
