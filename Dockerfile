# The images of Daybook: `--target bookie`, `--target broker`, `--target operator`, `--target spark`, `--target zookeeper`.
#
#   docker build --target bookie -t daybook-bookie .
#
# Each is its base, one virtual environment and nothing else: no compiler, no package manager's cache. They run as user
# 65532, write nowhere but to volumes and /tmp, and so serve on a read-only root file system.
#
# A package index is needed, and what the base's package manager installs a C compiler from: a few modules of Daybook are
# compiled (docs/adr/0012-compiled-modules.md).
#
# BASE     an image of Debian with Python 3.14, by default the public one of this very release; a tag can be moved, so name
#          a digest of your registry (…@sha256:…) where that matters
ARG BASE=docker.io/library/python:3.14.8-slim-trixie

FROM ${BASE} AS base
RUN echo 'daybook:x:65532:65532:daybook:/tmp:/usr/sbin/nologin' >> /etc/passwd && echo 'daybook:x:65532:' >> /etc/group
ENV HOME=/tmp PATH=/opt/daybook/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1

# What compiles. Debian's own Python has its headers in another package; uv trusts whom the base trusts.
FROM base AS tools
RUN headers=$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))') \
 && if [ -e "$headers/Python.h" ]; then package=; else package=python3-dev; fi \
 && export DEBIAN_FRONTEND=noninteractive && apt-get update -qq && apt-get install -qq --yes --no-install-recommends gcc libc6-dev $package > /dev/null \
 && python3 -m venv /opt/uv && /opt/uv/bin/pip install --quiet --no-cache-dir uv==0.13.9
ENV PATH=/opt/uv/bin:$PATH UV_NO_CACHE=1 SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt

# Downloads come before the sources, so that a change of these repeats none.
FROM tools AS dependencies
COPY uv.lock pyproject.toml /source/
COPY bookie-image/pyproject.toml /source/bookie-image/
COPY broker-image/pyproject.toml /source/broker-image/
COPY operator/pyproject.toml /source/operator/
COPY spark-jobs/pyproject.toml /source/spark-jobs/
COPY images/dependencies.sh /source/images/
RUN /source/images/dependencies.sh /wheelhouse

FROM dependencies AS wheels
COPY . /source
RUN /source/images/wheels.sh /wheelhouse

FROM base AS install
COPY --from=wheels /wheelhouse /wheelhouse
RUN python3 -m venv /opt/pip && python3 -m venv --without-pip /opt/daybook
ENV INSTALL="/opt/pip/bin/pip --python /opt/daybook/bin/python3 install --no-index --find-links /wheelhouse --no-cache-dir"

FROM install AS bookie-install
RUN $INSTALL daybook-bookie

FROM install AS broker-install
RUN $INSTALL 'daybook-broker[offload]'

FROM install AS operator-install
RUN $INSTALL daybook-operator

# PySpark is no wheel, so its package comes as it is installed; pip finds it there, and checks its version
FROM install AS spark-install
RUN cp -R /wheelhouse/spark/* /opt/daybook/lib/python3.*/site-packages/ && $INSTALL daybook-spark \
 && /opt/daybook/bin/python3 -m daybook_spark.java /opt/daybook/java /opt/java/bin/java

# A bookie, and `daybook` for repair Jobs and for people.
FROM base AS bookie
LABEL org.opencontainers.image.title="daybook-bookie" \
      org.opencontainers.image.description="A bookie of Daybook, and the daybook command" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=bookie-install /opt/daybook /opt/daybook
USER 65532:65532
EXPOSE 3181 3182 3184 8000
CMD ["daybook-bookie", "start"]

# A broker, and `daybook` for people.
FROM base AS broker
LABEL org.opencontainers.image.title="daybook-broker" \
      org.opencontainers.image.description="A broker of Daybook, and the daybook command" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=broker-install /opt/daybook /opt/daybook
USER 65532:65532
EXPOSE 6650 6651 8080 3182 8000
CMD ["daybook-broker", "start"]

FROM base AS operator
LABEL org.opencontainers.image.title="daybook-operator" \
      org.opencontainers.image.description="Daybook's Kubernetes operator" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=operator-install /opt/daybook /opt/daybook
USER 65532:65532
EXPOSE 8080 8000
CMD ["daybook-operator", "run"]

# Spark with Daybook's data source: drivers and executors on Kubernetes, and `daybook spark`.
FROM base AS spark
LABEL org.opencontainers.image.title="daybook-spark" \
      org.opencontainers.image.description="Spark with Daybook's data source, and the daybook command" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=wheels /wheelhouse/zookeeper/java /opt/java
COPY --from=spark-install /opt/daybook /opt/daybook
ENV JAVA_HOME=/opt/daybook/java
USER 65532:65532
ENTRYPOINT ["python3", "-m", "daybook_spark.entrypoint"]
CMD ["daybook", "spark", "--help"]

FROM base AS zookeeper
LABEL org.opencontainers.image.title="daybook-zookeeper" \
      org.opencontainers.image.description="A ZooKeeper server for Daybook's metadata" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=wheels /wheelhouse/zookeeper /opt/zookeeper
USER 65532:65532
EXPOSE 2181 2281 2888 3888 8080
CMD ["python3", "/opt/zookeeper/zookeeper_server.py"]
