"""Runwatch in a Kubernetes cluster: what is put into pods, and what objects of ours come to mean.

`webhook.py` answers the API server when a pod is made, `inject.py` says what the pod gets (pure
functions over objects), `workloads.py` whose pod it is, `certificates.py` keeps the server's
certificate.  `operator/` reads our objects and the pods, asks the head, and writes what it answers.
`api.py` is the one file that speaks to the API server (kopf does so for the operator's watches).

YAML lives in `deploy/helm`; `runwatch/kube.py` reads objects; what the head makes of pods is in
`head/features/cluster` and `views/`.  Nothing here runs in a training process.
"""
