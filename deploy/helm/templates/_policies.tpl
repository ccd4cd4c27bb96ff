{{/* The policy of the gateways: what this chart knows, and above it what was said. */}}
{{- define "fencegate.gatewayPolicy" -}}
{{- $policy := dict "version" 1 "unmatched" "reject" "zookeeper" (deepCopy .Values.zookeeper) -}}
{{- $_ := set $policy "listeners" (dict "public" (dict "address" (printf "%s:8080" .Values.bindAddress) "timeouts" (dict "drain" "45s"))) -}}
{{- $_ := set $policy "admin" (dict "address" (printf "%s:9901" .Values.bindAddress) "auth" (include "fencegate.bearer" . | fromYaml)) -}}
{{- if .Values.gateway.state.enabled -}}
{{- $_ := set $policy "state_dir" "/var/lib/fencegate" -}}
{{- end -}}
{{- if .Values.tickets.enabled -}}
{{- $_ := set $policy "tickets" (dict "signing_key_file" "/run/secrets/fencegate/tickets/gateway-key.json") -}}
{{- end -}}
{{- if .Values.guard.enabled -}}
{{- $guard := dict "endpoints" (list (printf "http://%s:8080" (include "fencegate.guard" .))) "fencing" "guard" -}}
{{- $_ := set $guard "direct" true -}}
{{- $_ := set $guard "response_timeout" "45s" -}}
{{- $_ := set $policy "upstreams" (dict .Values.guard.service.name $guard) -}}
{{- end -}}
{{- mergeOverwrite $policy (deepCopy .Values.gateway.policy) | toYaml -}}
{{- end }}

{{/* The file of the guard. */}}
{{- define "fencegate.guardPolicy" -}}
{{- $policy := dict "version" 1 "settle" "15s" "max_execution" "25s" "send_within" "5s" "missing" "refuse" "enforce" "refuse" -}}
{{- $_ := set $policy "listener" (dict "address" (printf "%s:8080" .Values.bindAddress)) -}}
{{- $_ := set $policy "admin" (dict "address" (printf "%s:9902" .Values.bindAddress) "auth" (include "fencegate.bearer" . | fromYaml)) -}}
{{- $_ := set $policy "upstream" (dict "endpoint" .Values.guard.service.endpoint "response_timeout" "20s") -}}
{{- if .Values.tickets.enabled -}}
{{- $_ := set $policy "tickets" (dict "public_keys_file" "/etc/fencegate-tickets/ticket-keys.json") -}}
{{- end -}}
{{- if eq .Values.guard.store.kind "postgres" -}}
{{- $database := dict "url_file" "/run/secrets/fencegate/database/url" -}}
{{- if .Values.guard.store.tls -}}
{{- $_ := set $database "tls" (dict "ca_file" "/run/secrets/fencegate/database/ca.pem") -}}
{{- end -}}
{{- $_ := set $policy "store" (dict "postgres" $database) -}}
{{- else -}}
{{- $_ := set $policy "store" (dict "redb" "/var/lib/fencegate-guard/guard.redb") -}}
{{- end -}}
{{- mergeOverwrite $policy (deepCopy .Values.guard.policy) | toYaml -}}
{{- end }}

{{- define "fencegate.bearer" -}}
bearer_file: /run/secrets/fencegate/admin/token
{{- end }}
