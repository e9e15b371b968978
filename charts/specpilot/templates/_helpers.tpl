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
{{- if and .Values.watchNamespaces .Values.ignoreNamespaces -}}
{{- fail "ignoreNamespaces: watchNamespaces names all that it works in; drop ignoreNamespaces" -}}
{{- end -}}
{{- if and .Values.gpu.matchers (not .Values.prometheus.url) -}}
{{- fail "gpu.matchers: there is no prometheus.url whose series they choose; add one, or drop them" -}}
{{- end -}}
{{- include "specpilot.checkPrometheus" .Values.prometheus -}}
{{- end -}}

{{- define "specpilot.checkPrometheus" -}}
{{- $auth := .basicAuth -}}
{{- $tls := .tls -}}
{{- $tlsUsed := or $tls.caSecret.name $tls.caConfigMap.name $tls.clientCertSecret.name $tls.insecureSkipVerify -}}
{{- if not .url -}}
{{- if or .bearerTokenSecret.name $auth.username $auth.passwordSecret.name $tlsUsed .headers .headersFrom -}}
{{- fail "prometheus: there is no prometheus.url that the other values belong to; add one" -}}
{{- end -}}
{{- end -}}
{{- if and $auth.username (not $auth.passwordSecret.name) -}}
{{- fail "prometheus.basicAuth: username has no password; add passwordSecret.name" -}}
{{- end -}}
{{- if and $auth.passwordSecret.name (not $auth.username) -}}
{{- fail "prometheus.basicAuth: passwordSecret belongs to no user; add username" -}}
{{- end -}}
{{- if and .bearerTokenSecret.name $auth.username -}}
{{- fail "prometheus: bearerTokenSecret and basicAuth exclude each other; keep one" -}}
{{- end -}}
{{- if and $tlsUsed (not (hasPrefix "https://" .url)) -}}
{{- fail "prometheus.tls: prometheus.url does not use TLS; write https://, or drop prometheus.tls" -}}
{{- end -}}
{{- if and $tls.caSecret.name $tls.caConfigMap.name -}}
{{- fail "prometheus.tls: name the authority once, either in caSecret or in caConfigMap" -}}
{{- end -}}
{{- if and $tls.insecureSkipVerify (or $tls.caSecret.name $tls.caConfigMap.name) -}}
{{- fail "prometheus.tls: an authority is never used with insecureSkipVerify: true; drop one" -}}
{{- end -}}
{{- $seen := dict -}}
{{- range $name, $_ := .headers -}}{{- $_ := set $seen (lower $name) true -}}{{- end -}}
{{- range .headersFrom -}}
{{- if hasKey $seen (lower .header) -}}
{{- fail (printf "prometheus.headersFrom: %s is given twice; keep one" .header) -}}
{{- end -}}
{{- $_ := set $seen (lower .header) true -}}
{{- end -}}
{{- end -}}

{{- define "specpilot.prometheusDirectory" -}}/etc/specpilot/prometheus{{- end -}}

{{/* Variables that say how to reach the Prometheus; secrets as names of files. */}}
{{- define "specpilot.prometheusEnv" -}}
{{- $dir := include "specpilot.prometheusDirectory" . -}}
{{- with .Values.prometheus }}
{{- if .url }}
- {name: SPECPILOT_PROMETHEUS_URL, value: {{ .url | quote }}}
{{- end }}
{{- if .bearerTokenSecret.name }}
- {name: SPECPILOT_PROMETHEUS_BEARER_TOKEN_FILE, value: {{ $dir }}/token}
{{- end }}
{{- if .basicAuth.username }}
- {name: SPECPILOT_PROMETHEUS_USERNAME, value: {{ .basicAuth.username | quote }}}
- {name: SPECPILOT_PROMETHEUS_PASSWORD_FILE, value: {{ $dir }}/password}
{{- end }}
{{- if or .tls.caSecret.name .tls.caConfigMap.name }}
- {name: SPECPILOT_PROMETHEUS_CA_FILE, value: {{ $dir }}/ca.crt}
{{- end }}
{{- if .tls.clientCertSecret.name }}
- {name: SPECPILOT_PROMETHEUS_CERT_FILE, value: {{ $dir }}/tls.crt}
- {name: SPECPILOT_PROMETHEUS_KEY_FILE, value: {{ $dir }}/tls.key}
{{- end }}
{{- if .tls.insecureSkipVerify }}
- {name: SPECPILOT_PROMETHEUS_INSECURE_SKIP_VERIFY, value: "true"}
{{- end }}
{{- with .headers }}
- name: SPECPILOT_PROMETHEUS_HEADERS # the kubelet reads $( as a variable, and $$( as text
  value: |-
    {{- range $name, $value := . }}
    {{ $name }}: {{ $value | replace "$(" "$$(" }}
    {{- end }}
{{- end }}
{{- with .headersFrom }}
- name: SPECPILOT_PROMETHEUS_HEADER_FILES
  value: |-
    {{- range . }}
    {{ .header }}: {{ $dir }}/headers/{{ .header }}
    {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Sources of the volume with the files of the Prometheus; empty when there are none. */}}
{{- define "specpilot.prometheusSources" -}}
{{- with .Values.prometheus }}
{{- with .bearerTokenSecret }}{{- if .name }}
- secret: {name: {{ .name }}, items: [{key: {{ .key | quote }}, path: token}]}
{{- end }}{{- end }}
{{- with .basicAuth.passwordSecret }}{{- if .name }}
- secret: {name: {{ .name }}, items: [{key: {{ .key | quote }}, path: password}]}
{{- end }}{{- end }}
{{- with .tls.caSecret }}{{- if .name }}
- secret: {name: {{ .name }}, items: [{key: {{ .key | quote }}, path: ca.crt}]}
{{- end }}{{- end }}
{{- with .tls.caConfigMap }}{{- if .name }}
- configMap: {name: {{ .name }}, items: [{key: {{ .key | quote }}, path: ca.crt}]}
{{- end }}{{- end }}
{{- with .tls.clientCertSecret }}{{- if .name }}
- secret:
    name: {{ .name }}
    items: [{key: {{ .certKey | quote }}, path: tls.crt}, {key: {{ .keyKey | quote }}, path: tls.key}]
{{- end }}{{- end }}
{{- range .headersFrom }}
- secret: {name: {{ .secret.name }}, items: [{key: {{ .secret.key | quote }}, path: headers/{{ .header }}}]}
{{- end }}
{{- end }}
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
  resources: [deployments, statefulsets]
  verbs: [get, list, watch, patch]
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [get, list, watch, patch]
- apiGroups: [argoproj.io]
  resources: [rollouts]
  verbs: [get, list, watch, patch]
- apiGroups: [argoproj.io]
  resources: [rollouts/status] # to say the word that a pause step waits for
  verbs: [patch]
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [get, list, watch]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete] # delete: those that a change undone has left broken
{{- range .Values.owners }}
{{ include "specpilot.ownerRules" . }}
{{- end }}
{{- with .Values.alerts.secretNames }}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: {{ toJson . }}
  verbs: [get]
{{- end }}
{{- end -}}

{{/* Rights on one kind that owns pods: to write its own field, and to read what stands below it. */}}
{{- define "specpilot.ownerRules" -}}
{{- if eq . "InferenceService" -}}
- apiGroups: [serving.kserve.io]
  resources: [inferenceservices]
  verbs: [get, list, watch, patch]
- apiGroups: [serving.knative.dev]
  resources: [services, configurations, revisions]
  verbs: [get, list]
{{- else if eq . "LLMInferenceService" -}}
- apiGroups: [serving.kserve.io]
  resources: [llminferenceservices]
  verbs: [get, list, watch, patch]
{{- else if eq . "VLLMRuntime" -}}
- apiGroups: [production-stack.vllm.ai]
  resources: [vllmruntimes]
  verbs: [get, list, watch, patch]
{{- else if eq . "RayService" -}}
- apiGroups: [ray.io]
  resources: [rayservices]
  verbs: [get, list, watch, patch]
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [get, list]
{{- else if eq . "DynamoGraphDeployment" -}}
- apiGroups: [nvidia.com]
  resources: [dynamographdeployments]
  verbs: [get, list, watch, patch]
- apiGroups: [nvidia.com]
  resources: [dynamocomponentdeployments]
  verbs: [get, list]
- apiGroups: [grove.io]
  resources: [podcliquesets, podcliquescalinggroups, podcliques]
  verbs: [get, list]
{{- else if eq . "StormService" -}}
- apiGroups: [orchestration.aibrix.ai]
  resources: [stormservices]
  verbs: [get, list, watch, patch]
- apiGroups: [orchestration.aibrix.ai]
  resources: [rolesets, podsets]
  verbs: [get, list]
{{- else if eq . "Model" -}}
- apiGroups: [kubeai.org]
  resources: [models]
  verbs: [get, list, watch, patch]
{{- end -}}
{{- end -}}
