# All commands on an NVIDIA GPU, from the wheel; CUDA comes with the extra gpu. In the root of a clone:
#   pip wheel . --no-deps --wheel-dir=dist && docker build --file=deploy/train.Dockerfile --tag=official-bert .
#   docker run --gpus=all --user="$(id -u):$(id -g)" --volume="$PWD:/work" official-bert run_classifier --helpfull
FROM python:3.13-slim
COPY dist/official_bert-*.whl /tmp/dist/
RUN pip install --no-cache-dir "$(ls /tmp/dist/official_bert-*.whl)[gpu]"
WORKDIR /work
ENV HOME=/tmp
ENTRYPOINT ["official-bert"]
