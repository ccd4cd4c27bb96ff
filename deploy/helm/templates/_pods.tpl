{{/* What every pod says before its containers. */}}
{{- define "fencegate.pod" -}}
automountServiceAccountToken: false
{{- with .Values.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
securityContext: {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Two of one part are not on one machine, where there is another. */}}
{{- define "fencegate.spread" -}}
{{- if not (index .root.Values .part).pod.topologySpreadConstraints -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "fencegate.selector" . | nindent 8 }}
{{- end }}
{{- end }}

{{/* What every container says. */}}
{{- define "fencegate.container" -}}
image: {{ include "fencegate.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* Neither of the two paths asks for the token. */}}
{{- define "fencegate.probes" -}}
startupProbe:
  httpGet: {path: /live, port: admin}
  periodSeconds: 1
  failureThreshold: {{ .patience }}
livenessProbe:
  httpGet: {path: /live, port: admin}
  periodSeconds: 10
readinessProbe:
  httpGet: {path: {{ .ready }}, port: admin}
  periodSeconds: 2
  failureThreshold: 2
{{- end }}

{{/* A secret as files that others cannot read (0440). */}}
{{- define "fencegate.secretVolume" -}}
- name: {{ .volume }}
  secret: {secretName: {{ .secret }}, defaultMode: 288}
{{- end }}
