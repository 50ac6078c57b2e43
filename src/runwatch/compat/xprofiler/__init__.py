"""cloud-diagnostics-xprof's command, provided by Runwatch.

`command.py` is the table of verbs and their flags, `verbs.py` what each does and says.  Where
instances live is behind one interface (`backend.py`): this machine (`local.py`), another one over
ssh (`ssh.py`), Compute Engine through gcloud (`gce.py`), Kubernetes through kubectl (`gke.py`).
`running.py` is the only file that starts other programs and waits for them.  `mltrace/` is the
original's second command.
"""
