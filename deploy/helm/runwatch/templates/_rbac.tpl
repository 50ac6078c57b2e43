{{/* A role and its binding to the part's account; with "namespace" only there. */}}
{{- define "runwatch.role" }}
{{- $kind := ternary "Role" "ClusterRole" (hasKey . "namespace") }}
{{- $is_own := eq .root.Release.Namespace (default "" .namespace) }}
{{- $name := ternary (include "runwatch.fullname" .root) (include "runwatch.wide" .root) $is_own }}
{{- $name = printf "%s-%s" $name .part }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ $name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "runwatch.labels" . | nindent 4 }}
rules:
  {{- range .rules }}
  - {{ toJson . }}
  {{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ $name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "runwatch.labels" . | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ $kind }}, name: {{ $name }}}
subjects:
- kind: ServiceAccount
  name: {{ include "runwatch.account" . }}
  namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* The kinds whose pods are watched, those between them and the pod, and what starts them: they are read, one by one. */}}
{{- define "runwatch.workloads" -}}
- {apiGroups: [apps], resources: [deployments, replicasets, statefulsets], verbs: [get]}
- {apiGroups: [batch], resources: [jobs, cronjobs], verbs: [get]}
- {apiGroups: [jobset.x-k8s.io], resources: [jobsets], verbs: [get]}
- {apiGroups: [leaderworkerset.x-k8s.io], resources: [leaderworkersets], verbs: [get]}
- {apiGroups: [ray.io], resources: [rayclusters, rayjobs, rayservices, raycronjobs], verbs: [get]}
- {apiGroups: [kubeflow.org], resources: [pytorchjobs, mpijobs, tfjobs, jaxjobs, xgboostjobs, paddlejobs, scheduledworkflows], verbs: [get]}
- {apiGroups: [trainer.kubeflow.org], resources: [trainjobs], verbs: [get]}
- {apiGroups: [argoproj.io], resources: [workflows, cronworkflows], verbs: [get]}
- {apiGroups: [batch.volcano.sh], resources: [jobs], verbs: [get]}
{{- range .Values.rbac.workloads }}
- {apiGroups: {{ toJson .apiGroups }}, resources: {{ toJson .resources }}, verbs: [get]}
{{- end }}
{{- end -}}
