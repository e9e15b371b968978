{{- define "specpilot.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "specpilot.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "specpilot.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Names of objects without a namespace: two releases of one name may live in one cluster. */}}
{{- define "specpilot.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "specpilot.fullname" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "specpilot.selectorLabels" -}}
app.kubernetes.io/name: {{ include "specpilot.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "specpilot.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "specpilot.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "specpilot.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "specpilot.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "specpilot.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* "true" when the database is a file of this pod. */}}
{{- define "specpilot.embedded" -}}
{{- if not .Values.database.existingSecret.name -}}
{{- if or (not .Values.database.url) (hasPrefix "sqlite" .Values.database.url) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses what the schema cannot see, in words. */}}
{{- define "specpilot.check" -}}
{{- if and (gt (int .Values.replicas) 1) (include "specpilot.embedded" .) -}}
{{- fail (printf "replicas: %d need a database that they share; set database.url or database.existingSecret.name to a PostgreSQL, or replicas: 1" (int .Values.replicas)) -}}
{{- end -}}
{{- if and .Values.database.url .Values.database.existingSecret.name -}}
{{- fail "database: give the URL once, either in url or in existingSecret" -}}
{{- end -}}
{{- if and .Values.prometheus.tokenSecret.name (not .Values.prometheus.url) -}}
{{- fail "prometheus.tokenSecret: there is no prometheus.url that it belongs to; add one" -}}
{{- end -}}
{{- end -}}

{{/* What Specpilot may do with the objects of a namespace. Secrets: only `get`, only by name. */}}
{{- define "specpilot.rules" -}}
- apiGroups: [specpilot.io]
  resources: [speculationpolicies, rulesets, flagchanges, alertchannels]
  verbs: [get, list, watch]
- apiGroups: [specpilot.io]
  resources: [speculationpolicies/status, rulesets/status, flagchanges/status, alertchannels/status]
  verbs: [patch]
- apiGroups: [specpilot.io]
  resources: [flagchanges]
  verbs: [create, patch, delete]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, patch]
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
{{- with .Values.alerts.secretNames }}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: {{ toJson . }}
  verbs: [get]
{{- end }}
{{- end -}}
