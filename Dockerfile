# The operator. The chart runs it as a user of its own, with a read-only root file system.
FROM python:3.12-slim AS build
WORKDIR /src
RUN pip install --no-cache-dir build
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
COPY rules rules
COPY migrations migrations
COPY charts charts
RUN python -m build --wheel --outdir /wheels

FROM python:3.12-slim
COPY constraints.txt /tmp/
COPY --from=build /wheels /wheels
RUN wheel=$(ls /wheels/*.whl) \
 && pip install --no-cache-dir -c /tmp/constraints.txt "specpilot[postgres] @ file://$wheel" \
 && rm -r /wheels /tmp/constraints.txt \
 && useradd --uid 65532 --no-create-home specpilot
USER 65532
ENTRYPOINT ["specpilot"]
CMD ["operator"]
