{{- define "tollhouse.pod" -}}
metadata:
  labels:
    {{- include "tollhouse.selector" . | nindent 4 }}
  annotations:
    # Changed settings restart the pod.
    checksum/config: {{ printf "%s%s" .Values.config (toJson .Values.settings) | sha256sum }}
spec:
  serviceAccountName: {{ .Release.Name }}
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 30
  {{- if eq .Values.storage.engine "postgres" }}
  # A machine that is lost takes one gateway with it, where there are enough machines.
  affinity:
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 100
          podAffinityTerm:
            topologyKey: kubernetes.io/hostname
            labelSelector:
              matchLabels:
                {{- include "tollhouse.selector" . | nindent 16 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: tollhouse
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [serve, --config, /etc/tollhouse/tollhouse.toml
        {{- if .Values.settings }}, --apply, /etc/tollhouse/settings, --secrets, /etc/tollhouse/keys{{ end }}]
      env:
        # Below the volume's root, whose mode belongs to Kubernetes.
        - {name: TOLLHOUSE_DATA_DIR, value: /var/lib/tollhouse/data}
        - {name: TOLLHOUSE_SERVER__LISTEN, value: "0.0.0.0:4318"}
        - {name: TOLLHOUSE_SERVER__GRPC_LISTEN, value: "0.0.0.0:4317"}
        {{- if eq .Values.storage.engine "postgres" }}
        - {name: TOLLHOUSE_STORAGE__ENGINE, value: postgres}
        - {name: TOLLHOUSE_STORAGE__DSN_FILE, value: /etc/tollhouse/storage/dsn}
        - {name: TOLLHOUSE_STORAGE__SECRET_FILE, value: /etc/tollhouse/storage/installation.secret}
        - {name: TOLLHOUSE_STORAGE__NODE_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: TOLLHOUSE_SPOOL__MAX_BYTES, value: {{ required "storage.maxBytes is required with storage.engine=postgres: at most 60 % of the disk of the database, such as 60GiB of 100" .Values.storage.maxBytes }}}
        {{- end }}
        {{- if .Values.monitoring.enabled }}
        - {name: TOLLHOUSE_SERVER__METRICS_LISTEN, value: "0.0.0.0:4320"}
        {{- end }}
      ports:
        - {name: http, containerPort: 4318}
        - {name: grpc, containerPort: 4317}
        {{- if .Values.monitoring.enabled }}
        - {name: metrics, containerPort: 4320}
        {{- end }}
      # The start opens the records that wait, and waits for room on a full disk; /livez answers meanwhile.
      startupProbe: {httpGet: {path: /livez, port: http}, periodSeconds: 2, failureThreshold: 60}
      livenessProbe: {httpGet: {path: /livez, port: http}, periodSeconds: 10, timeoutSeconds: 11, failureThreshold: 6}
      readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 5, timeoutSeconds: 11}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: data, mountPath: /var/lib/tollhouse}
        - {name: settings, mountPath: /etc/tollhouse/tollhouse.toml, subPath: tollhouse.toml, readOnly: true}
        - {name: keys, mountPath: /etc/tollhouse/keys, readOnly: true}
        {{- if .Values.settings }}
        - {name: files, mountPath: /etc/tollhouse/settings, readOnly: true}
        {{- end }}
        - {name: tmp, mountPath: /tmp}
        {{- if eq .Values.storage.engine "postgres" }}
        - {name: storage, mountPath: /etc/tollhouse/storage, readOnly: true}
        {{- end }}
  volumes:
    - {name: settings, configMap: {name: {{ .Release.Name }}}}
    - {name: keys, secret: {secretName: {{ .Values.keysSecret }}, optional: true, defaultMode: 0440}}
    {{- if .Values.settings }}
    - name: files
      configMap:
        name: {{ .Release.Name }}-settings
        items:
          {{- range $path := keys .Values.settings | sortAlpha }}
          - {key: {{ $path | replace "/" "." }}, path: {{ $path }}}
          {{- end }}
    {{- end }}
    - {name: tmp, emptyDir: {medium: Memory, sizeLimit: 64Mi}}
    {{- if eq .Values.storage.engine "postgres" }}
    # The socket of the commands alone: nothing in it is needed again.
    - {name: data, emptyDir: {sizeLimit: 64Mi}}
    - {name: storage, secret: {secretName: {{ .Values.storage.secret }}, defaultMode: 0440}}
    {{- end }}
{{- end }}
