"""Linear systems of a few unknowns, solved as straight-line code.

Under `vmap` a LAPACK call per 3 x 3 matrix costs more than the arithmetic. Written out entry by entry, elimination is
elementwise over the batch, which is what vector units are for.
"""

from __future__ import annotations

import jax.numpy as jnp

#: Largest system that is written out; above it the program text grows faster than it pays.
UNROLLED = 6


def solve(matrix, rhs, unroll: bool = True):
    """x with matrix @ x = rhs, for matrix (n, n) and rhs (n,) or (n, k). Partial pivoting; singular gives inf or NaN.

    Unrolled code runs ten times faster in large batches and takes seconds longer to compile: ask for it in batches.
    """
    n = matrix.shape[0]
    if n == 0:
        return rhs
    if n > (UNROLLED if unroll else 2):
        return jnp.linalg.solve(matrix, rhs)
    columns = rhs[:, None] if rhs.ndim == 1 else rhs
    rows = [[matrix[i, j] for j in range(n)] + [columns[i, k] for k in range(columns.shape[1])] for i in range(n)]
    width = n + columns.shape[1]
    for k in range(n):
        for i in range(k + 1, n):  # a running comparison instead of argmax: no gather
            swap = jnp.abs(rows[i][k]) > jnp.abs(rows[k][k])
            top = [jnp.where(swap, rows[i][j], rows[k][j]) for j in range(k, width)]
            low = [jnp.where(swap, rows[k][j], rows[i][j]) for j in range(k, width)]
            rows[k][k:], rows[i][k:] = top, low
        pivot = 1.0 / rows[k][k]
        for i in range(k + 1, n):
            factor = rows[i][k] * pivot
            for j in range(k + 1, width):
                rows[i][j] = rows[i][j] - factor * rows[k][j]
    out = [[None] * columns.shape[1] for _ in range(n)]
    for c in range(columns.shape[1]):
        for i in reversed(range(n)):
            total = rows[i][n + c]
            for j in range(i + 1, n):
                total = total - rows[i][j] * out[j][c]
            out[i][c] = total / rows[i][i]
    x = jnp.stack([jnp.stack(row) for row in out])
    return x[:, 0] if rhs.ndim == 1 else x
