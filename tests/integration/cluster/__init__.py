"""The API server of the tests is right, and what asks it by `kubectl` is.

Here it is asked by clients that are not ours (kubectl, kopf, plain HTTP), for what the API's
documents promise.  What the webhook and the operator do with it is tested beside them.
"""
