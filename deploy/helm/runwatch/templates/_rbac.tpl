{{/* A role and its binding to the part's account; with "namespace" only there. */}}
{{- define "runwatch.role" }}
{{- $kind := ternary "Role" "ClusterRole" (hasKey . "namespace") }}
{{- $name := ternary (include "runwatch.fullname" .root) (include "runwatch.wide" .root) (hasKey . "namespace") }}
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

{{/* The kinds whose pods are watched, and those between them and the pod; the argument: the verbs. */}}
{{- define "runwatch.workloads" -}}
- {apiGroups: [apps], resources: [deployments, replicasets, statefulsets], verbs: {{ toJson . }}}
- {apiGroups: [batch], resources: [jobs], verbs: {{ toJson . }}}
- {apiGroups: [jobset.x-k8s.io], resources: [jobsets], verbs: {{ toJson . }}}
- {apiGroups: [leaderworkerset.x-k8s.io], resources: [leaderworkersets], verbs: {{ toJson . }}}
- {apiGroups: [ray.io], resources: [rayclusters, rayjobs, rayservices], verbs: {{ toJson . }}}
- {apiGroups: [kubeflow.org], resources: [pytorchjobs, mpijobs, tfjobs, jaxjobs], verbs: {{ toJson . }}}
- {apiGroups: [trainer.kubeflow.org], resources: [trainjobs], verbs: {{ toJson . }}}
- {apiGroups: [batch.volcano.sh], resources: [jobs], verbs: {{ toJson . }}}
{{- end -}}
