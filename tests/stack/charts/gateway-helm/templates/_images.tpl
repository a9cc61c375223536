{{/* A whole name of an image whose registry is over the one of all images. Arguments: root, image. */}}
{{- define "gateway.image" -}}
{{- $parts := splitn "/" 2 .image -}}
{{ .root.Values.global.imageRegistry | default $parts._0 }}/{{ $parts._1 }}
{{- end }}

{{- define "gateway.secrets" -}}
{{- .Values.global.images.envoyGateway.pullSecrets | default .Values.global.imagePullSecrets | toJson -}}
{{- end }}
