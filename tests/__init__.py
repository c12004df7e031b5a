"""The tests.

unit/        one folder for each package, and in it the same folders: quick, mostly without processes
model/       the core as a whole: simulated, explored, told as scripts, and with each rule taken out
process/     real processes: histories that are judged, chaos, power cuts, hostile input
kubernetes/  a real API server, the chart, images, a real cluster of three nodes
cluster/     what makes an API server, and a cluster of real nodes, on this machine: `python -m tests.cluster`
fixtures/    ZooKeeper, clusters and package indexes that several of them use
test_tidy.py, test_package.py   the house rules; what users import
"""
