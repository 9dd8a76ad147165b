# The server of an export, from the wheel. In the root of a clone:
#   pip wheel . --no-deps --wheel-dir=dist && docker build --file=deploy/serve.Dockerfile --tag=official-bert-serve .
#   docker run --publish=8501:8501 --volume="$PWD/serving/classifier:/models/classifier:ro" official-bert-serve \
#       --export_dir=/models/classifier
FROM python:3.13-slim
COPY dist/official_bert-*.whl /tmp/dist/
RUN pip install --no-cache-dir "$(ls /tmp/dist/official_bert-*.whl)[serve]"
USER nobody
EXPOSE 8500 8501
ENTRYPOINT ["official-bert", "serve"]
