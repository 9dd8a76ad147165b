"""Compression formats of text inputs, by usual file extension."""

import bz2
import gzip
import lzma

from backports import zstd

COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd.compress}
