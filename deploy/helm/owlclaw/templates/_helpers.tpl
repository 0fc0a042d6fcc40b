{{- define "owlclaw.name" -}}
{{- if ne .Release.Name "owlclaw" }}{{ printf "owlclaw-%s" .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}owlclaw{{ end }}
{{- end }}

{{- define "owlclaw.serve" -}}
{{ include "owlclaw.name" . }}-serve-svc
{{- end }}

{{- define "owlclaw.files" -}}
{{- $files := dict -}}
{{- range $path, $text := .Values.files }}{{ $_ := set $files (replace "/" "." $path) $text }}{{ end -}}
{{- toYaml $files }}
{{- end }}

{{- /* A ConfigMap has its text in its name: a change of it is a change of the RayService, and so a new cluster. */ -}}
{{- define "owlclaw.appMap" -}}
{{ include "owlclaw.name" . }}-app-{{ include "owlclaw.files" . | sha256sum | trunc 10 }}
{{- end }}

{{- define "owlclaw.nodeMap" -}}
{{ include "owlclaw.name" . }}-node-{{ .Files.Get "node.env" | sha256sum | trunc 10 }}
{{- end }}
