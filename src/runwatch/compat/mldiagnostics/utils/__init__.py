"""What the original knows of the machine, its accelerators and its workload.

Answers come from the environment, /proc, /sys and libraries that are installed; the metadata
service is asked only on machines of Google's cloud.  What cannot be read is None or an empty list,
not zero.
"""
