{{- define "tollhouse.selector" -}}
app.kubernetes.io/name: tollhouse
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "tollhouse.labels" -}}
{{ include "tollhouse.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- define "tollhouse.metadata" -}}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "tollhouse.labels" . | nindent 2 }}
{{- end }}
