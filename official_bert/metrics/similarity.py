"""Similarity of vectors: normalization, nearest neighbours, principal components."""

import numpy as np

# Rows per block: 25 MB at 384 float32 components per row, regardless of the total number of rows.
_BLOCK_ROWS = 1 << 14
# Upper bound of the float32 rounding error of the dot product of two unit vectors.
_FLOAT32_ERROR = 1e-5


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors to length 1.

    Args:
      vectors: float [..., D].

    Returns:
      float64 [..., D]; a zero vector stays zero, so its cosine similarity to any other is 0.
    """
    vectors = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)


def nearest(vectors: np.ndarray, queries: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    """Find the vectors with the largest cosine similarity to each query.

    Blocks of vectors are multiplied with all queries in float32. The best candidates are then compared again in
    float64, so that equal vectors have equal similarities at any position and nearly equal vectors differ.

    Args:
      vectors: float32 [N, D], of length 1 up to rounding, N > 0; may be memory-mapped.
      queries: float32 [Q, D], of length 1 up to rounding.
      top_k: number of vectors to find; all if there are fewer.

    Returns:
      For each query the nearest rows, int64 [Q, K], best first and ties in row order, and their cosine similarities,
      float64 [Q, K]. K is the smaller of `top_k` and N.
    """
    rows = [np.zeros(0, np.int64)] * len(queries)
    cosines = [np.zeros(0)] * len(queries)
    for start in range(0, len(vectors), _BLOCK_ROWS):
        block = vectors[start : start + _BLOCK_ROWS]
        products = (block @ queries.T).T  # [Q, rows of the block]; several times faster than queries @ block.T
        for number, query in enumerate(normalized(queries)):  # normalized again, since float32 rounds the lengths
            candidates = _above(products[number], cosines[number], top_k)
            exact = (normalized(block[candidates]) * query).sum(axis=1)
            cosines[number] = np.concatenate([cosines[number], exact])
            rows[number] = np.concatenate([rows[number], start + candidates])
            # Stable: ties keep row order.
            best = np.argsort(-cosines[number], kind="stable")[:top_k]
            cosines[number], rows[number] = cosines[number][best], rows[number][best]
    return np.stack(rows), np.stack(cosines)


def _above(products: np.ndarray, best_so_far: np.ndarray, top_k: int) -> np.ndarray:
    """Return the rows of a block that may be among the best, given the rounding error, in row order."""
    limit = best_so_far[-1] if len(best_so_far) == top_k else -np.inf
    if len(products) > top_k:
        limit = max(limit, np.partition(products, -top_k)[-top_k])
    return np.flatnonzero(products >= limit - _FLOAT32_ERROR)


def cosine_table(vectors: np.ndarray) -> np.ndarray:
    """Return the cosine similarities of all pairs of vectors: float [N, D] in, float64 [N, N] out."""
    vectors = normalized(vectors)
    return vectors @ vectors.T


def principal_components(vectors: np.ndarray, num_components: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Project vectors onto their principal components (PCA by singular value decomposition).

    Args:
      vectors: float [N, D].
      num_components: K, number of components.

    Returns:
      The coordinates, float64 [N, K], and the fraction of the variance that each component explains, float64 [K]. The
      sign of each component is chosen so that its largest absolute coordinate is positive; components beyond the rank
      are zero.
    """
    centred = np.asarray(vectors, np.float64) - np.mean(vectors, axis=0, dtype=np.float64)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    coordinates = np.zeros((len(centred), num_components))
    shares = np.zeros(num_components)
    num_found = min(num_components, len(singular))
    coordinates[:, :num_found] = left[:, :num_found] * singular[:num_found]
    total = np.sum(singular**2)
    if total > 0:
        shares[:num_found] = singular[:num_found] ** 2 / total
    largest = np.argmax(np.abs(coordinates), axis=0)
    signs = np.sign(coordinates[largest, np.arange(num_components)])
    return coordinates * np.where(signs < 0, -1.0, 1.0), shares
