"""An API server for tests: HTTP over TLS, with storage, watches, admission and rules of access.

Real kubectl and kopf speak to it.  It follows Kubernetes' documented API conventions and shares no
code with `runwatch.k8s`, which it is there to test.

    from tests.cluster.server import Cluster

    with Cluster(tmp_path) as cluster:        # in a thread of its own; nothing is left behind
        cluster.apply(rendered())             # objects (the chart's: `chart.py`) or a file of YAML
        cluster.namespace("team", {"runwatch.dev/watch": "true"})

At once, as an admin, past every fault (`hands.py`); what is refused raises a `Refusal`:

    pod = cluster.create({"apiVersion": "v1", "kind": "Pod", …}, "team")
    cluster.get("pod", "a", "team"); cluster.find("pod", "a", "team"); cluster.list("pods", "team")
    cluster.patch("pod", "a", {"metadata": {"labels": {"x": "y"}}}, "team")
    cluster.status("pod", "a", {"phase": "Running"}, "team"); cluster.delete("pod", "a", "team")

Over HTTP, as anybody:

    Api(Access(cluster.server, cluster.account("runwatch", "runwatch-operator")))   # a pod's folder
    {**os.environ, **cluster.environment, "KUBECONFIG": str(cluster.kubeconfig)}    # an admin's
    cluster.kubeconfig_of("runwatch", "runwatch-operator")          # with that account's rights
    cluster.ask("GET", "/api/v1/pods").status                       # one request, an admin's

Who is no admin has the rights that the stored roles give (`Cluster(…, enforced=False)`: every).
A new pod goes through stored MutatingWebhookConfigurations over TLS; where their Service is, a test
says: `cluster.services["runwatch", "runwatch-webhook"] = "127.0.0.1", port`.

`cluster.asked` is what was asked over HTTP, `cluster.reviews` every call of a webhook,
`cluster.watching()` how many watches run.  What goes wrong is in `cluster.faults` (`faults.py`):
`latency_seconds`, `fail`, `lose`, `conflict`, `slow`, `drop_watches()`, `compact()` (410),
`down()`, `up()`, `restart()`, and `done`, which is called between a deed and its answer.

`objects.py` writes objects, `kubelet.py` plays the scheduler and the kubelet, `controllers.py` the
controllers that make pods of workloads.  By hand: `python -m tests.cluster --dir DIR`.
"""
