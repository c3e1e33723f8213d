{{- define "sluice.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 48 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 48 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 48 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "sluice.labels" -}}
{{ include "sluice.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* What never changes, for selectors. */}}
{{- define "sluice.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sluice.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}

{{- define "sluice.webhook" -}}
{{ include "sluice.fullname" . }}-webhook
{{- end -}}

{{/* The Service that the API server calls for conversions. */}}
{{- define "sluice.conversion" -}}
{{ include "sluice.fullname" . }}-conversion
{{- end -}}

{{- define "sluice.scheduler" -}}
{{ include "sluice.fullname" . }}-scheduler
{{- end -}}

{{/* The Service of the visibility API. */}}
{{- define "sluice.visibility" -}}
{{ include "sluice.fullname" . }}-visibility
{{- end -}}

{{/* Which pods the scheduler runs in. */}}
{{- define "sluice.schedulerComponent" -}}
{{ if .Values.scheduler.standalone }}scheduler{{ else }}webhook{{ end }}
{{- end -}}

{{/* Not empty: the visibility API is served with a certificate that the API server checks. */}}
{{- define "sluice.visibilityChecked" -}}
{{- if and .Values.visibility.enabled .Values.visibility.caBundle }}yes{{ end -}}
{{- end -}}

{{- define "sluice.visibilityMount" -}}
{{- if include "sluice.visibilityChecked" . }}
- {name: visibility-tls, mountPath: /etc/sluice/visibility-tls, readOnly: true}
{{- end }}
{{- end -}}

{{/* Optional: queueing goes on without it. */}}
{{- define "sluice.visibilityVolume" -}}
{{- if include "sluice.visibilityChecked" . }}
- name: visibility-tls
  secret:
    secretName: {{ .Values.visibility.certificateSecret | default (printf "%s-tls" (include "sluice.visibility" .)) }}
    defaultMode: 288
    optional: true
{{- end }}
{{- end -}}

{{/* The ConfigMap with the configuration file. */}}
{{- define "sluice.configuration" -}}
{{ include "sluice.fullname" . }}-config
{{- end -}}

{{/* Pods start anew when the file changes. */}}
{{- define "sluice.configurationAnnotation" -}}
sluice.internal/config-checksum: {{ .Values.config | sha256sum }}
{{- end -}}

{{- define "sluice.configurationMount" -}}
- {name: config, mountPath: /etc/sluice/config, readOnly: true}
{{- end -}}

{{- define "sluice.configurationVolume" -}}
- name: config
  configMap:
    name: {{ include "sluice.configuration" . }}
    defaultMode: 292
{{- end -}}

{{/* The one object of kind Term: the number of the present leadership. */}}
{{- define "sluice.term" -}}
scheduler
{{- end -}}

{{/* The service account that the scheduler runs as. */}}
{{- define "sluice.schedulerAccount" -}}
{{- if .Values.scheduler.standalone -}}
{{ include "sluice.scheduler" . }}
{{- else -}}
{{ include "sluice.webhook" . }}
{{- end -}}
{{- end -}}

{{/* JSON list: the user names that the scheduler writes as. */}}
{{- define "sluice.schedulerUsers" -}}
{{- $account := printf "system:serviceaccount:%s:%s" .Release.Namespace (include "sluice.schedulerAccount" .) -}}
{{- concat (list $account) .Values.policies.schedulerUsers | uniq | toJson -}}
{{- end -}}

{{/* CEL: the request is the scheduler's. */}}
{{- define "sluice.byScheduler" -}}
request.userInfo.username in {{ include "sluice.schedulerUsers" . }}
{{- end -}}

{{/* CEL: the request is the scheduler's or that of a break-glass user. */}}
{{- define "sluice.byTrusted" -}}
{{- $users := concat (include "sluice.schedulerUsers" . | fromJsonArray) .Values.policies.breakGlass.users | uniq -}}
(request.userInfo.username in {{ toJson $users }}
{{- with .Values.policies.breakGlass.groups }} || request.userInfo.?groups.orValue([]).exists(group, group in {{ toJson . }}){{ end -}}
)
{{- end -}}

{{/* Label selector requirement: namespaces that are never managed. */}}
{{- define "sluice.exemptNamespaces" -}}
- key: kubernetes.io/metadata.name
  operator: NotIn
  values: {{ list "kube-system" .Release.Namespace | uniq | toJson }}
{{- end -}}

{{/* What all pods share. */}}
{{- define "sluice.pod" -}}
automountServiceAccountToken: true
enableServiceLinks: false
restartPolicy: Always
schedulerName: default-scheduler
dnsPolicy: ClusterFirst
terminationGracePeriodSeconds: 30
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ toJson . }}
{{- end }}
{{- end -}}

{{/* Spread over nodes and zones. Takes the root context and the component; fills in the selector. */}}
{{- define "sluice.spread" -}}
{{- $root := index . 0 -}}
{{- $selector := merge (dict "app.kubernetes.io/component" (index . 1)) (include "sluice.selector" $root | fromYaml) -}}
{{- $constraints := $root.Values.topologySpreadConstraints | default (list
  (dict "topologyKey" "kubernetes.io/hostname" "maxSkew" 1 "whenUnsatisfiable" "ScheduleAnyway")
  (dict "topologyKey" "topology.kubernetes.io/zone" "maxSkew" 1 "whenUnsatisfiable" "ScheduleAnyway")) -}}
topologySpreadConstraints:
{{- range $constraints }}
  - {{ merge (dict) . (dict "labelSelector" (dict "matchLabels" $selector)) | toJson }}
{{- end }}
{{- end -}}

{{/* What all containers share. */}}
{{- define "sluice.container" -}}
image: {{ include "sluice.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
terminationMessagePath: /dev/termination-log
terminationMessagePolicy: FallbackToLogsOnError
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
env:
  - name: POD_NAME
    valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}
{{- end -}}

{{/* The scheduler, wherever it runs. */}}
{{- define "sluice.schedulerContainer" -}}
{{- $s := .Values.scheduler -}}
name: scheduler
command: [sluice-scheduler]
args:
  - --namespace={{ .Release.Namespace }}
  - --config=/etc/sluice/config/config.yaml
  - --health-bind-address={{ .Values.listenHost }}:{{ $s.healthPort }}
  - --lease-name={{ $s.lease.name }}
  - --lease-namespace={{ $s.lease.namespace }}
  - --lease-duration={{ $s.lease.duration }}
  - --lease-renew-deadline={{ $s.lease.renewDeadline }}
  - --lease-retry-period={{ $s.lease.retryPeriod }}
{{- range $s.lease.guards }}
  - --guard-lease={{ .namespace }}/{{ .name }}
{{- end }}
  - --term-name={{ include "sluice.term" . }}
  - --visibility={{ .Values.visibility.enabled }}
{{- if .Values.visibility.enabled }}
  - --visibility-bind-address={{ .Values.listenHost }}:{{ .Values.visibility.port }}
  - --visibility-service={{ include "sluice.visibility" . }}
{{- if include "sluice.visibilityChecked" . }}
  - --visibility-tls-cert-file=/etc/sluice/visibility-tls/tls.crt
  - --visibility-tls-private-key-file=/etc/sluice/visibility-tls/tls.key
{{- end }}
{{- end }}
  - --write-concurrency={{ $s.writeConcurrency }}
  - --log-format={{ .Values.logFormat }}
  - --log-filter={{ .Values.logLevel }}
{{ include "sluice.container" . }}
ports:
  - {name: sched-health, containerPort: {{ $s.healthPort }}, protocol: TCP}
{{- if .Values.visibility.enabled }}
  - {name: visibility, containerPort: {{ .Values.visibility.port }}, protocol: TCP}
{{- end }}
livenessProbe:
  httpGet: {path: /healthz, port: sched-health, scheme: HTTP}
  periodSeconds: 10
  timeoutSeconds: 2
  failureThreshold: 3
  successThreshold: 1
resources:
  {{- toYaml $s.resources | nindent 2 }}
volumeMounts:
  {{- include "sluice.configurationMount" . | nindent 2 }}
  {{- include "sluice.visibilityMount" . | trim | nindent 2 }}
{{- end -}}
