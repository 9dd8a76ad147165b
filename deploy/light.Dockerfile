# The server of an export for LiteRT, from the wheel, without TensorFlow and Keras. In the root of a clone:
#   pip wheel . --no-deps --wheel-dir=dist && docker build --file=deploy/light.Dockerfile --tag=official-bert-light .
#   docker run --publish=8501:8501 --volume="$PWD/serving/classifier:/models/classifier:ro" official-bert-light \
#       --export_dir=/models/classifier
FROM python:3.13-slim
COPY dist/official_bert-*.whl deploy/light.txt /tmp/dist/
RUN pip install --no-cache-dir --requirement=/tmp/dist/light.txt && pip install --no-cache-dir --no-deps /tmp/dist/*.whl
USER nobody
EXPOSE 8501
ENTRYPOINT ["official-bert", "serve"]
