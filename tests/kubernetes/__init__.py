"""The operator, the chart and the images, on a real API server and on a real cluster.

api/      the operator as a process, CRDs and their rules, on a real API server
chart/    what Helm renders, and what the API server says to it
plugin/   `kubectl daybook`
images/   built from this machine alone
e2e/      the chart on a cluster of three nodes, which is then harmed: `make e2e`
"""
