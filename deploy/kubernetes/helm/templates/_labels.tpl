{{- define "tollhouse.selector" -}}
app.kubernetes.io/name: tollhouse
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "tollhouse.metadata" -}}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "tollhouse.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
