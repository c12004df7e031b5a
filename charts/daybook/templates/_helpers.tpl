{{- define "daybook.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "daybook.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "daybook.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "daybook.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "daybook.operator" -}}
{{ include "daybook.fullname" . }}-operator
{{- end }}

{{- define "daybook.broker" -}}
{{ include "daybook.fullname" . }}-broker
{{- end }}

{{/* The ServiceAccount of the drivers of jobs on Spark, in each namespace of jobs.namespaces */}}
{{- define "daybook.jobsAccount" -}}
{{ include "daybook.fullname" . }}-jobs
{{- end }}

{{- define "daybook.zookeeper" -}}
{{ include "daybook.fullname" . }}-zookeeper
{{- end }}

{{/* What selects the pods of a component: (dict "root" $ "component" "operator") */}}
{{- define "daybook.selector" -}}
app.kubernetes.io/name: daybook
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{/* Labels of every object of a component */}}
{{- define "daybook.labels" -}}
{{ include "daybook.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* An image: (dict "root" $ "repository" "daybook-operator") */}}
{{- define "daybook.image" -}}
{{- $image := .root.Values.image -}}
{{- if $image.registry }}{{ trimSuffix "/" $image.registry }}/{{ end }}{{ .repository }}:{{ default .root.Chart.AppVersion $image.tag }}
{{- end }}

{{- define "daybook.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A query and its retries go to one DNS server: if its node has died, another query may meet another one. So give up after two seconds, not ten */}}
{{- define "daybook.podDns" -}}
dnsConfig:
  options:
    - {name: timeout, value: "1"}
    - {name: attempts, value: "2"}
{{- end }}

{{/* Restricted pod security: of a pod, and of a container */}}
{{- define "daybook.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "daybook.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* host:port,… of ZooKeeper */}}
{{- define "daybook.connectString" -}}
{{- if .Values.zookeeper.external }}
{{- .Values.zookeeper.external }}
{{- else }}
{{- $access := .Values.zookeeper.access.tls }}
{{- if and $access.secretName (not .Values.tls.enabled) }}
{{- fail "zookeeper.access.tls needs a ZooKeeper that speaks TLS: set tls.enabled, or zookeeper.external" }}
{{- end }}
{{- if and $access.secretName (ne $access.clientAuth "Required") }}
{{- fail "the chart's ZooKeeper asks for a certificate on its secure port: set zookeeper.access.tls.clientAuth to Required" }}
{{- end }}
{{- $port := ternary "2281" "2181" (not (empty $access.secretName)) }}
{{- $hosts := list }}
{{- range $host := splitList "," (include "daybook.zookeeperHosts" .) }}
{{- $hosts = append $hosts (printf "%s:%s" $host $port) }}
{{- end }}
{{- join "," $hosts }}
{{- end }}
{{- end }}

{{/* Hosts of the chart's ZooKeeper servers, by ordinal */}}
{{- define "daybook.zookeeperHosts" -}}
{{- $name := include "daybook.zookeeper" . }}
{{- $domain := empty .Values.clusterDomain | ternary "" (printf ".%s" .Values.clusterDomain) }}
{{- $hosts := list }}
{{- range $ordinal := until (int .Values.zookeeper.replicas) }}
{{- $hosts = append $hosts (printf "%s-%d.%s-servers.%s.svc%s" $name $ordinal $name $.Release.Namespace $domain) }}
{{- end }}
{{- join "," $hosts }}
{{- end }}

{{/*
Refuse another number of ZooKeeper servers than there are, but for one more once all others know theirs. Where the volume of
that one exists, the ensemble has grown already and was taken back, by which servers that know of it no longer start: to go on
is the way out. Helm sees what is installed only where it talks to an API server; the servers themselves refuse in any case.
*/}}
{{- define "daybook.checkEnsemble" -}}
{{- $name := include "daybook.zookeeper" . }}
{{- with lookup "apps/v1" "StatefulSet" .Release.Namespace $name }}
{{- $known := dig "annotations" "daybook.dev/zookeeper-servers" "" .metadata }}
{{- $before := int (default .spec.replicas $known) }}
{{- $after := int $.Values.zookeeper.replicas }}
{{- $status := default dict .status }}
{{- $isWhole := and (eq (int $status.readyReplicas) $before) (eq (default "" $status.currentRevision) (default "" $status.updateRevision)) (eq (int $status.observedGeneration) (int .metadata.generation)) }}
{{- if ne $before $after }}
{{- if ne $after (int (add $before 1)) }}
{{- fail (printf "zookeeper.replicas is %d, and StatefulSet %s has %d servers: two majorities could decide apart. Set it to %d again; an ensemble grows by one server at a time and does not shrink (docs/kubernetes.md, Growing ZooKeeper)" $after $name $before $before) }}
{{- else if not $.Values.zookeeper.growing }}
{{- fail (printf "zookeeper.replicas is %d, and StatefulSet %s has %d servers: to grow it by one server set zookeeper.growing as well (docs/kubernetes.md, Growing ZooKeeper)" $after $name $before) }}
{{- else if not (or $isWhole (lookup "v1" "PersistentVolumeClaim" $.Release.Namespace (printf "data-%s-%d" $name $before))) }}
{{- fail (printf "zookeeper.replicas is %d, and not all of the %d servers of StatefulSet %s are ready and rolled: wait until they are (kubectl rollout status)" $after $before $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "daybook.zookeeperSecret" -}}
{{ default (printf "%s-tls" (include "daybook.zookeeper" .)) .Values.tls.secrets.zookeeper }}
{{- end }}

{{/* Variables, a mount and a volume of who is let in by ZooKeeper: (dict "root" $ "prefix" "DAYBOOK_ZOOKEEPER_") */}}
{{- define "daybook.accessVariables" -}}
{{- $prefix := .prefix }}
{{- with .root.Values.zookeeper.access }}
{{- if .tls.secretName }}
- name: {{ $prefix }}TLS
  value: "true"
- name: {{ $prefix }}TLS_CA
  value: /zookeeper-tls/ca.crt
{{- if eq .tls.clientAuth "Required" }}
- name: {{ $prefix }}TLS_CERTIFICATE
  value: /zookeeper-tls/tls.crt
- name: {{ $prefix }}TLS_KEY
  value: /zookeeper-tls/tls.key
{{- end }}
{{- with .tls.x509Owners }}
- name: {{ $prefix }}X509_OWNERS
  value: {{ toJson . | quote }}
{{- end }}
{{- end }}
{{- if .digestSecretRef.name }}
- name: {{ $prefix }}DIGEST
  valueFrom: {secretKeyRef: {name: {{ .digestSecretRef.name }}, key: {{ .digestSecretRef.key }}}}
{{- end }}
{{- end }}
{{- end }}

{{- define "daybook.accessMounts" -}}
{{- if .Values.zookeeper.access.tls.secretName }}
- {name: zookeeper-tls, mountPath: /zookeeper-tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "daybook.accessVolumes" -}}
{{- with .Values.zookeeper.access.tls.secretName }}
- name: zookeeper-tls
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- end }}

{{/* The operator's own files, which carry its role; Secrets that were made by hand are one for all clients unless it says otherwise */}}
{{- define "daybook.operatorTlsSecret" -}}
{{- $own := printf "%s-operator-tls" (include "daybook.fullname" .) }}
{{- default (ternary $own (include "daybook.clientSecret" .) .Values.tls.certManager.enabled) .Values.tls.secrets.operator }}
{{- end }}

{{/* The clusters whose bookies are called: the chart's, and those of its pools */}}
{{- define "daybook.tlsClusters" -}}
{{- $clusters := list .Values.cluster }}
{{- range .Values.tls.certManager.pools }}
{{- $clusters = append $clusters (default $.Values.cluster .cluster) }}
{{- end }}
{{- $clusters | uniq | toJson }}
{{- end }}

{{- define "daybook.clientSecret" -}}
{{ default (printf "%s-client-tls" (include "daybook.fullname" .)) .Values.tls.secrets.client }}
{{- end }}

{{/* Files of pulsar+ssl:// */}}
{{- define "daybook.brokerTlsSecret" -}}
{{ default (printf "%s-tls" (include "daybook.broker" .)) .Values.tls.secrets.broker }}
{{- end }}

{{/* As many brokers as there may be at once */}}
{{- define "daybook.brokersMax" -}}
{{- with .Values.broker }}
{{- ternary .autoscaling.maxReplicas .replicas .autoscaling.enabled | int }}
{{- end }}
{{- end }}

{{/* Hosts by which clients outside reach the brokers, by ordinal, as JSON */}}
{{- define "daybook.externalHosts" -}}
{{- $hosts := list }}
{{- with .Values.broker.external }}
{{- if not .host }}
{{- fail (printf "broker.external.type %s needs broker.external.host, by which clients outside reach the brokers: brokers cannot look it up" .type) }}
{{- end }}
{{- if and (eq .type "LoadBalancer") (not (contains "{ordinal}" .host)) }}
{{- fail (printf "each broker has a load balancer of its own: broker.external.host needs {ordinal}, like broker-{ordinal}.example.org, and not %s" .host) }}
{{- end }}
{{- range $ordinal := until (int (include "daybook.brokersMax" $)) }}
{{- $hosts = append $hosts ($.Values.broker.external.host | replace "{ordinal}" (toString $ordinal)) }}
{{- end }}
{{- end }}
{{- $hosts | toJson }}
{{- end }}

{{/* URLs that the brokers give clients outside, by ordinal, as JSON */}}
{{- define "daybook.externalAddresses" -}}
{{- $external := .Values.broker.external }}
{{- $scheme := ternary "pulsar+ssl" "pulsar" .Values.tls.enabled }}
{{- $urls := list }}
{{- range $ordinal, $host := include "daybook.externalHosts" . | fromJsonArray }}
{{- $port := ternary (add (int $external.nodePort) $ordinal) (ternary 6651 6650 $.Values.tls.enabled) (eq $external.type "NodePort") }}
{{- $urls = append $urls (printf "%s://%s:%v" $scheme $host $port) }}
{{- end }}
{{- $urls | toJson }}
{{- end }}
