#!/bin/sh
# Put into DIRECTORY, which has what dependencies.sh put there, what comes from these sources: Daybook's wheels, with the modules of
# tools/compiled compiled for the Python that is `python3` here, and ZooKeeper's entry point. It needs uv, a package index, a C compiler
# and Python's headers.
set -eu
directory=${1:?usage: images/wheels.sh DIRECTORY}
directory=$(cd "$directory" && pwd)
cd "$(dirname "$0")/.."
UV_PYTHON=$(command -v python3)
export UV_PYTHON

for package in daybook daybook-bookie daybook-broker daybook-operator daybook-spark; do
  uv build --quiet --wheel --package "$package" --out-dir "$directory"
done
uv run --quiet --frozen --only-group compiled python -m tools.compiled "$directory"

cp daybook/runtime/zookeeper_server.py "$directory/zookeeper/"
mkdir -p "$directory/zookeeper/daybook/runtime"  # the server's script finds it beside itself, under its name
cp daybook/runtime/zookeeper_ensemble.py "$directory/zookeeper/daybook/runtime/"
