# Flatwater on CPUs, with the versions of constraints.txt.
#
#   docker build -t flatwater .
#   docker run --rm --init --stop-timeout 120 -v "$PWD/runs:/work/runs" flatwater train erl --run runs/first
#
# docs/flatwater/operating.md explains it; tests/test_container.py compares it with the project.
FROM python:3.11-slim

COPY constraints.txt LICENSE /opt/flatwater/
COPY packages /opt/flatwater/packages
RUN python -m pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu \
    -c /opt/flatwater/constraints.txt "/opt/flatwater/packages/watch[page]" "/opt/flatwater/packages/flatwater[teach]" \
    "/opt/flatwater/packages/trading"

# Runs belong to a user without rights; `docker run --user "$(id -u)"` makes them yours.
RUN useradd --create-home flatwater && mkdir -p /work/runs && chown -R flatwater /work
USER flatwater
WORKDIR /work
ENV MPLCONFIGDIR=/tmp XDG_CACHE_HOME=/tmp

# As a list, without a shell: signals reach the run itself.
STOPSIGNAL SIGTERM
ENTRYPOINT ["flatwater"]
CMD ["--help"]
