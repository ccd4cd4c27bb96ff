{{/* What all resources are called by. */}}
{{- define "fencegate.name" -}}
{{- $default := ternary .Release.Name (printf "%s-fencegate" .Release.Name) (contains "fencegate" .Release.Name) -}}
{{- .Values.fullnameOverride | default .Values.nameOverride | default $default | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "fencegate.guard" -}}{{ include "fencegate.name" . }}-guard{{- end }}

{{/* Of one part: `gateway`, `guard` or `init`. Never changed: a selector cannot be. */}}
{{- define "fencegate.selector" -}}
app.kubernetes.io/name: fencegate
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "fencegate.labels" -}}
{{ include "fencegate.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Of a pod: `part` and what its values say. */}}
{{- define "fencegate.podLabels" -}}
{{ include "fencegate.selector" . }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- with (index .root.Values .part).podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "fencegate.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- define "fencegate.adminSecret" -}}
{{- .Values.admin.existingSecret | default (printf "%s-admin" (include "fencegate.name" .)) -}}
{{- end }}

{{- define "fencegate.ticketSecret" -}}
{{- .Values.tickets.existingSecret | default (printf "%s-tickets" (include "fencegate.name" .)) -}}
{{- end }}

{{- define "fencegate.ticketKeys" -}}
{{- .Values.tickets.existingConfigMap | default (printf "%s-ticket-keys" (include "fencegate.name" .)) -}}
{{- end }}

{{- define "fencegate.databaseSecret" -}}
{{- .Values.guard.store.existingSecret | default (printf "%s-guard-database" (include "fencegate.name" .)) -}}
{{- end }}

{{/* Which IP families a service has; what the cluster takes by default, where nothing is said. */}}
{{- define "fencegate.families" -}}
{{- with .Values.ipFamilyPolicy -}}
ipFamilyPolicy: {{ . }}
{{ end }}
{{- with .Values.ipFamilies -}}
ipFamilies: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
