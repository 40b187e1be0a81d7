{{- define "ledger.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "ledger.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* All pods of nodes, and neither the migration's nor the verification's. */}}
{{- define "ledger.nodeSelector" -}}
matchLabels:
  {{- include "ledger.selector" . | nindent 2 }}
  rewards-ledger/is-node: "true"
{{- end }}

{{- define "ledger.labels" -}}
{{ include "ledger.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "ledger.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "ledger.keysSecret" -}}
{{ .Values.keys.existingSecret | default (printf "%s-keys" (include "ledger.name" .)) }}
{{- end }}

{{- define "ledger.databaseSecret" -}}
{{ .Values.database.existingSecret | default (printf "%s-database" (include "ledger.name" .)) }}
{{- end }}

{{- define "ledger.scheme" -}}
{{ ternary "https" "http" (ne .Values.tls.existingSecret "") }}
{{- end }}

{{- define "ledger.servicePort" -}}
{{ ternary 443 80 (ne .Values.tls.existingSecret "") }}
{{- end }}

{{- /* What stands for all addresses of a pod. */}}
{{- define "ledger.everywhere" -}}
{{ ternary "[::]" "0.0.0.0" .Values.ipv6 }}
{{- end }}

{{- define "ledger.serverName" -}}
{{ required "set tls.serverName to a name in the certificate" .Values.tls.serverName }}
{{- end }}

{{- /* The database of nodes and of the commands that the service's login may run. */}}
{{- define "ledger.databaseUrls" -}}
- name: DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ include "ledger.databaseSecret" . }}, key: service-url}}
# Only behind PgBouncer in transaction mode.
- name: DIRECT_DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ include "ledger.databaseSecret" . }}, key: direct-url, optional: true}}
# Only with a standby for reads.
- name: READ_DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ include "ledger.databaseSecret" . }}, key: read-url, optional: true}}
{{- end }}

{{- define "ledger.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
# The key files belong to root and this group.
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "ledger.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Placement and security, shared by the nodes and the migration. */}}
{{- define "ledger.podDefaults" -}}
# The program does not talk to Kubernetes.
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- include "ledger.podSecurity" . | nindent 2 }}
{{- end }}

{{- /* Pods of one kind of node. Takes a dict: root, component, roles, resources, suppliers (a Secret's name, or none), and data
(a volume, or none for a claim). */}}
{{- define "ledger.pods" -}}
{{- $ := .root -}}
metadata:
  labels:
    {{- include "ledger.labels" $ | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    rewards-ledger/is-node: "true"
  annotations:
    # Restarts the pods when the chart's own secrets change.
    checksum/secrets: {{ include (print $.Template.BasePath "/secrets.yaml") $ | sha256sum }}
    {{- with $.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "ledger.name" $ }}
  {{- include "ledger.podDefaults" $ | nindent 2 }}
  terminationGracePeriodSeconds: {{ $.Values.terminationGracePeriodSeconds }}
  {{- if $.Values.tls.existingSecret }}
  hostAliases:
    - {ip: 127.0.0.1, hostnames: [{{ include "ledger.serverName" $ }}]}
  {{- end }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "ledger.selector" $ | nindent 10 }}
          app.kubernetes.io/component: {{ .component }}
  containers:
    - name: rewards-ledger
      image: {{ include "ledger.image" $ }}
      imagePullPolicy: {{ $.Values.image.pullPolicy }}
      args: [serve]
      securityContext: {{- include "ledger.containerSecurity" $ | nindent 8 }}
      env:
        - {name: LEDGER_ROLES, value: {{ .roles | quote }}}
        - {name: LEDGER_LISTEN, value: "{{ include "ledger.everywhere" $ }}:8080"}
        - {name: LEDGER_OPERATOR_LISTEN, value: "{{ include "ledger.everywhere" $ }}:8081"}
        # For commands of the other nodes.
        - name: POD_IP
          valueFrom: {fieldRef: {fieldPath: status.podIP}}
        - {name: LEDGER_NODE_LISTEN, value: "{{ include "ledger.everywhere" $ }}:8082"}
        - {name: LEDGER_NODE_URL, value: "http://{{ ternary "[$(POD_IP)]" "$(POD_IP)" $.Values.ipv6 }}:8082"}
        # For `rewards-ledger admin` in the pod.
        {{- if $.Values.tls.existingSecret }}
        - {name: LEDGER_URL, value: "https://{{ include "ledger.serverName" $ }}:8081"}
        - {name: LEDGER_TLS_CERT, value: /etc/rewards-ledger/tls/tls.crt}
        - {name: LEDGER_TLS_KEY, value: /etc/rewards-ledger/tls/tls.key}
        {{- else }}
        - {name: LEDGER_URL, value: "http://127.0.0.1:8081"}
        {{- end }}
        - {name: LEDGER_MASTER_KEY_FILE, value: /etc/rewards-ledger/keys/master.key}
        - {name: LEDGER_LOG_KEY_FILE, value: /etc/rewards-ledger/keys/log.key}
        - {name: LEDGER_OPERATOR_TOKEN_FILE, value: /etc/rewards-ledger/keys/operator.token}
        - {name: LEDGER_DATA_DIR, value: /var/lib/rewards-ledger}
        {{- include "ledger.databaseUrls" $ | nindent 8 }}
        {{- if .suppliers }}
        - {name: LEDGER_SUPPLIERS_FILE, value: /etc/rewards-ledger/suppliers/suppliers.toml}
        {{- end }}
        {{- with $.Values.traces.existingSecret }}
        - name: OTEL_EXPORTER_OTLP_HEADERS
          valueFrom: {secretKeyRef: {name: {{ . }}, key: headers}}
        {{- end }}
        {{- if $.Values.traces.caConfigMap }}
        - {name: LEDGER_OTLP_CA_FILE, value: /etc/rewards-ledger/traces/ca.pem}
        {{- end }}
        {{- range $name, $value := $.Values.settings }}
        - {name: {{ $name }}, value: {{ $value | quote }}}
        {{- end }}
      ports:
        - {name: http, containerPort: 8080}
        - {name: operators, containerPort: 8081}
        - {name: nodes, containerPort: 8082}
      # The node starts when the migration is done, which the first pods may have to wait for.
      startupProbe:
        httpGet: {path: /healthz, port: operators, scheme: {{ include "ledger.scheme" $ | upper }}}
        periodSeconds: 2
        failureThreshold: 60
      livenessProbe:
        httpGet: {path: /healthz, port: operators, scheme: {{ include "ledger.scheme" $ | upper }}}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: operators, scheme: {{ include "ledger.scheme" $ | upper }}}
        periodSeconds: 5
        timeoutSeconds: 5
      lifecycle:
        preStop: {sleep: {seconds: {{ $.Values.preStopSeconds }}}}
      resources: {{- toYaml .resources | nindent 8 }}
      volumeMounts:
        - {name: keys, mountPath: /etc/rewards-ledger/keys, readOnly: true}
        - {name: data, mountPath: /var/lib/rewards-ledger}
        {{- if $.Values.tls.existingSecret }}
        - {name: tls, mountPath: /etc/rewards-ledger/tls, readOnly: true}
        {{- end }}
        {{- if .suppliers }}
        - {name: suppliers, mountPath: /etc/rewards-ledger/suppliers, readOnly: true}
        {{- end }}
        {{- if $.Values.database.caConfigMap }}
        - {name: database-ca, mountPath: /etc/rewards-ledger/database, readOnly: true}
        {{- end }}
        {{- if $.Values.traces.caConfigMap }}
        - {name: traces-ca, mountPath: /etc/rewards-ledger/traces, readOnly: true}
        {{- end }}
  volumes:
    - name: keys
      secret: {secretName: {{ include "ledger.keysSecret" $ }}, defaultMode: 0440}
    {{- with .data }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with $.Values.tls.existingSecret }}
    - name: tls
      secret: {secretName: {{ . }}, defaultMode: 0440}
    {{- end }}
    {{- with .suppliers }}
    - name: suppliers
      secret: {secretName: {{ . }}, defaultMode: 0440}
    {{- end }}
    {{- with $.Values.database.caConfigMap }}
    - name: database-ca
      configMap: {name: {{ . }}}
    {{- end }}
    {{- with $.Values.traces.caConfigMap }}
    - name: traces-ca
      configMap: {name: {{ . }}}
    {{- end }}
{{- end }}
