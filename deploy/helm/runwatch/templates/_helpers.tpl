{{- define "runwatch.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "runwatch.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "runwatch.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "runwatch.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* dict "root" $ "part" "head": what a Service, a budget, a monitor finds pods by.  It never changes. */}}
{{- define "runwatch.selector" -}}
app.kubernetes.io/name: {{ include "runwatch.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "runwatch.known" -}}
{{ include "runwatch.selector" . }}
app.kubernetes.io/part-of: runwatch
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- end -}}

{{- define "runwatch.labels" -}}
{{ include "runwatch.known" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "runwatch.meta" -}}
name: {{ include "runwatch.fullname" .root }}-{{ .part }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "runwatch.labels" . | nindent 2 }}
{{- end -}}

{{/*
The metadata of a pod: dict "root" $ "part" "head" "with" .Values.head.  The chart's own version is not in it: a new chart
alone starts no pod anew.
*/}}
{{- define "runwatch.podMeta" -}}
labels:
  {{- include "runwatch.known" . | nindent 2 }}
  {{- with merge (dict) .with.podLabels .root.Values.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .with.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "runwatch.account" -}}
{{- .with.serviceAccount.name | default (printf "%s-%s" (include "runwatch.fullname" .root) .part) -}}
{{- end -}}

{{/* The whole of a ServiceAccount. */}}
{{- define "runwatch.serviceAccount" -}}
{{- if .with.serviceAccount.create }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "runwatch.account" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "runwatch.labels" . | nindent 4 }}
  {{- with .with.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end }}
{{- end -}}

{{- define "runwatch.image" -}}
{{- $image := .Values.image -}}
{{- if regexMatch "@|:[^/]*$" $image.repository -}}
{{- fail (printf "image.repository is %q: the tag is image.tag, the digest is image.digest" $image.repository) -}}
{{- end -}}
{{- if eq $image.tag "latest" -}}
{{- fail "image.tag is `latest`, which is another image each day: name a version, or a digest" -}}
{{- end -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* What the pods of all parts have: whose they are, image secrets, where they may run. */}}
{{- define "runwatch.placing" -}}
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with .with.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .with.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .with.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Pod Security: restricted. */}}
{{- define "runwatch.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "runwatch.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Two pods of a part are on two nodes, where there are two. */}}
{{- define "runwatch.spread" -}}
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "runwatch.selector" . | nindent 6 }}
{{- end -}}

{{- define "runwatch.basePath" -}}
{{- with .Values.head.basePath | trimAll "/" }}/{{ . }}{{ end -}}
{{- end -}}

{{- define "runwatch.headHost" -}}
{{ include "runwatch.fullname" . }}-head.{{ .Release.Namespace }}.svc
{{- end -}}

{{- define "runwatch.address" -}}
{{- if .Values.address -}}
{{- .Values.address -}}
{{- else if .Values.head.enabled -}}
{{- $scheme := empty .Values.head.tls.secretName | ternary "http" "https" -}}
{{- printf "%s://%s:%d%s" $scheme (include "runwatch.headHost" .) (int .Values.head.service.httpPort) (include "runwatch.basePath" .) -}}
{{- else -}}
{{- fail "head.enabled is false, and no other head is named: set `address`, like https://runwatch.example:8090" -}}
{{- end -}}
{{- end -}}

{{- define "runwatch.publicUrl" -}}
{{- $base := include "runwatch.basePath" . -}}
{{- if .Values.publicUrl -}}
{{- .Values.publicUrl -}}
{{- else if and .Values.ingress.enabled .Values.ingress.host -}}
{{- printf "%s://%s%s" (empty .Values.ingress.tlsSecretName | ternary "http" "https") .Values.ingress.host $base -}}
{{- else if and .Values.gateway.enabled .Values.gateway.hostnames -}}
{{- printf "https://%s%s" (first .Values.gateway.hostnames) $base -}}
{{- else -}}
{{- include "runwatch.address" . -}}
{{- end -}}
{{- end -}}

{{- define "runwatch.tokens" -}}
{{- if not (or .Values.head.enabled .Values.tokens.existingSecret) -}}
{{- fail "head.enabled is false, and nothing has the other head's tokens: put them into a Secret, and name it as tokens.existingSecret" -}}
{{- end -}}
{{- .Values.tokens.existingSecret | default (printf "%s-tokens" (include "runwatch.fullname" .)) -}}
{{- end -}}

{{/* The Secret with the ca.crt by which programs check the head; nothing: by the authorities that their image knows. */}}
{{- define "runwatch.caSecret" -}}
{{- if .Values.caSecret -}}
{{- .Values.caSecret -}}
{{- else if and .Values.head.enabled .Values.head.tls.hasCa -}}
{{- .Values.head.tls.secretName -}}
{{- end -}}
{{- end -}}

{{/* Env and mounts of everything that asks the head. */}}
{{- define "runwatch.headEnv" -}}
- {name: RUNWATCH_HEAD, value: {{ include "runwatch.address" . | quote }}}
{{- if include "runwatch.caSecret" . }}
- {name: RUNWATCH_CA, value: /etc/runwatch/ca/ca.crt}
{{- end }}
{{- end -}}

{{- define "runwatch.caMount" -}}
{{- if include "runwatch.caSecret" . -}}
- {name: ca, mountPath: /etc/runwatch/ca, readOnly: true}
{{- end }}
{{- end -}}

{{- define "runwatch.caVolume" -}}
{{- with include "runwatch.caSecret" . -}}
- name: ca
  secret:
    secretName: {{ . }}
    items: [{key: ca.crt, path: ca.crt}]
{{- end }}
{{- end -}}

{{- define "runwatch.certificate" -}}
{{- $own := printf "%s-webhook-certificate" (include "runwatch.fullname" .) -}}
{{- if eq .Values.webhook.certificate.source "secret" -}}
{{- required "webhook.certificate.source is `secret`: set webhook.certificate.secretName" .Values.webhook.certificate.secretName -}}
{{- else -}}
{{- $own -}}
{{- end -}}
{{- end -}}

{{/* Lets pods ask for names. */}}
{{- define "runwatch.dns" -}}
- ports:
  - {protocol: UDP, port: 53}
  - {protocol: TCP, port: 53}
{{- end -}}

{{/* Objects without a namespace: another release has its own. */}}
{{- define "runwatch.wide" -}}
{{- $name := include "runwatch.fullname" . -}}
{{- if eq .Release.Namespace $name }}{{ $name }}{{ else }}{{ printf "%s-%s" .Release.Namespace $name }}{{ end -}}
{{- end -}}

{{/* The name of the MutatingWebhookConfiguration. */}}
{{- define "runwatch.scope" -}}
{{ include "runwatch.wide" . }}-webhook
{{- end -}}

{{/* The API server: at its Service's port, and at its own. */}}
{{- define "runwatch.toApi" -}}
- ports:
  {{- range .Values.networkPolicy.apiServerPorts }}
  - {protocol: TCP, port: {{ . }}}
  {{- end }}
{{- end -}}

{{/* Namespaces that are never looked at: a list as JSON. */}}
{{- define "runwatch.exempt" -}}
{{- concat (list "kube-system" "kube-public" "kube-node-lease" .Release.Namespace) .Values.webhook.exemptNamespaces | uniq | toJson -}}
{{- end -}}
