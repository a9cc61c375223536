{{/* An image whose registry is over the one of all images. Arguments: root, image. */}}
{{- define "prometheus.image" -}}
{{ .root.Values.global.imageRegistry | default .image.registry }}/{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end }}
