# The service of a gallery, without torch:
#   docker build -t dasd-lab .
#   docker run --rm -v GALLERY:/gallery -v ~/Pictures:/pictures:ro dasd-lab dasd-lab gallery import /pictures --gallery /gallery --run /model
#   docker run -p 8765:8765 -v GALLERY:/gallery -e DASD_LAB_TOKEN=… -e DASD_LAB_NAME=pictures.example.org dasd-lab
# The first stage, which is thrown away, has torch and writes the graphs; the second runs them.

FROM python:3.12-slim AS graphs
ARG RUN=photographs
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /made . && cp constraints.txt /made
RUN pip install --no-cache-dir -c constraints.txt "dasd_lab[onnx] @ file://$(echo /made/*.whl)"
RUN dasd-lab publish "$RUN" /model --onnx --no-table

FROM python:3.12-slim
RUN --mount=type=bind,from=graphs,source=/made,target=/made \
  pip install --no-cache-dir -c /made/constraints.txt "dasd_lab[light] @ file://$(echo /made/*.whl)"
COPY --from=graphs --chown=10001 /model/onnx /model
RUN useradd --create-home --uid 10001 lab && mkdir /gallery && chown lab /gallery
USER lab
WORKDIR /home/lab
ENV DASD_LAB_BACKEND=onnx-int8 DASD_LAB_HOME=/home/lab/dasd_lab PYTHONUNBUFFERED=1
# graphs are read into buffers, which glibc would keep
ENV MALLOC_ARENA_MAX=1 MALLOC_TRIM_THRESHOLD_=65536 MALLOC_MMAP_THRESHOLD_=65536
VOLUME /gallery
EXPOSE 8765
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8765/', timeout=4)"]
CMD ["sh", "-c", ": \"${DASD_LAB_TOKEN:?an access token}\" && exec dasd-lab serve /gallery --run /model --host 0.0.0.0 --port 8765 --name \"${DASD_LAB_NAME:?the name of this machine}\""]
