"""Compression formats of text inputs, by usual file extension."""

import bz2
import functools
import gzip
import lzma

from backports import zstd

XZ = functools.partial(lzma.compress, preset=0)  # fast
COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": XZ, ".zst": zstd.compress}
