"""Write the same tensors to `zip.bin`, `legacy.bin` and `tensors.safetensors`, with PyTorch 2.13: python make.py."""

import collections
import pathlib

import safetensors.torch
import torch

FOLDER = pathlib.Path(__file__).parent

torch.manual_seed(0)
table = torch.arange(24.0).reshape(4, 6)
tensors = collections.OrderedDict(
    table=table,
    transposed=table.T,  # two views of one storage
    part=table[1:, 2:4],
    float64=torch.randn(3, dtype=torch.float64),
    float16=torch.randn(2, 2).half(),
    bfloat16=torch.randn(5).bfloat16(),
    int64=torch.arange(4),
    scalar=torch.tensor(3.5),
    empty=torch.zeros(0, 3),
    parameter=torch.nn.Parameter(torch.randn(2)),
)
torch.save(tensors, FOLDER / "zip.bin")
torch.save(tensors, FOLDER / "legacy.bin", _use_new_zipfile_serialization=False)
copies = {name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()}
safetensors.torch.save_file(copies, FOLDER / "tensors.safetensors")
