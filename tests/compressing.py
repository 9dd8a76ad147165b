"""The formats of compression that text inputs may have, by the usual ending of a file's name."""

import bz2
import gzip
import lzma

from backports import zstd

COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd.compress}
