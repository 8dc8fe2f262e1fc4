"""The CPU runtime: matrix products out of register tiles; moves.py has the rest. Generated kernels
call it by address.

In: nothing but int64 arguments (addresses, counts, strides in elements). Out: memory. addresses.py
has the functions compiled once for a dtype and machine and gives their addresses. It knows nothing
of cells, steps in time or threads.

These are texts in Numba's Python, copied into a module for each dtype, where `pointer` makes its
pointers.
"""

from __future__ import annotations

from rnnspec.backends.cpu.machine import ALL, APART, BLOCK_K, BLOCK_M, BLOCK_N, WHERE_A, WHERE_B, host
from rnnspec.backends.cpu.processor import VECTORS
from rnnspec.backends.cpu.runtime.outer_tile import not_finite, outer_columns, outer_tiles, rows_ahead
from rnnspec.backends.cpu.runtime.simd import at, get, load, min, pointer_int, store
from rnnspec.backends.cpu.runtime.simd import pointer32 as pointer
from rnnspec.backends.cpu.runtime.tile import most_groups, most_rows, product_tiles

# of `product`: terms of a panel that all rows pass before the next ones; at K = 4096 blocks of 128
# or none at all cost a third
PRODUCT_K = 512
# what the texts below see, with `pointer` above: as they stand they are for float32
LANES, OUTER_VECTORS = host().lanes["float32"], host().outer_vectors
AHEAD = rows_ahead(LANES)


def product(desc, group, groups, row, rows):
    """C[rows, V vectors] = init + the sum over segments of A_s[rows, K_s] @ panel_s[K_s, V *
    LANES], for `groups` groups of vectors from `group` on.

    desc: int64 fields, strides in elements.
      0 segments, 1 panels, 2 their group stride, 3 V of every group but the last,
      4 V of the last, 5 the last group,
      6 C, 7 its row stride, 8 its step from group to group (also that of init)
      16 + 4 j: offset of vector j in C; 17: its init (may be C itself), 18: its row stride (0: one
      bias for all rows)
      48 + 4 s: A of segment s, 49: its row stride, 50: K_s
    Panels of a group: one segment after the other, each K_s rows of V * LANES elements.
    """
    fields = pointer_int(desc)
    end = group + groups if rows > 0 else group
    while group < end:
        vectors, many = get(fields, 3), end - group
        if vectors != get(fields, 4) and end > get(fields, 5):  # the last group has a tile of its own
            if many > 1:
                many -= 1
            else:
                vectors = get(fields, 4)
        many = most_groups(rows, vectors, many)
        panel = at(pointer(get(fields, 1)), group * get(fields, 2))
        shift = group * get(fields, 8)
        most = most_rows(vectors * many)
        tiles = (rows + most - 1) // most
        segments, s, k0, more, width = get(fields, 0), 0, 0, 0, vectors * LANES
        # one block of K after another: of a long segment, or as many segments as are short
        while s < segments or more == 0:
            K = get(fields, 50 + 4 * s) - k0 if s < segments else 0
            whole, count = min(1, segments), 0
            if tiles > 2 and K > PRODUCT_K + PRODUCT_K // 2:
                K = count = 1 * PRODUCT_K  # a constant alone would be its type
            elif k0 > 0:
                count = K
            else:
                while s + whole < segments and (
                    tiles <= 2 or K + get(fields, 50 + 4 * (s + whole)) <= PRODUCT_K + PRODUCT_K // 2
                ):
                    K += get(fields, 50 + 4 * (s + whole))
                    whole += 1
            # the last of the panels side by side: what lies behind it comes next
            ahead = at(panel, K * width + (many - 1) * get(fields, 2))
            step, done = (width + tiles - 1) // tiles, 0
            while done < rows:  # twice at most: tiles of n rows, and of one less
                left = (rows - done + most - 1) // most
                n = (rows - done + left - 1) // left
                alike = left - (n * left - (rows - done))
                product_tiles(
                    n,
                    vectors,
                    many,
                    fields,
                    panel,
                    shift,
                    row + done,
                    alike,
                    s,
                    whole,
                    k0,
                    count,
                    more,
                    ahead,
                    step,
                    K * step,
                )
                ahead = at(ahead, K * step * alike)
                done += n * alike
            panel, more = at(panel, K * width), 1
            if count > 0 and k0 + count < get(fields, 50 + 4 * s):
                k0 += count
            else:
                s, k0 = s + whole, 0
        group += many


def outer(a, a_row, b, b_row, rows, M, N, c, c_row, scratch, kept):
    """C[M, N] += the sum over rows k of A[k, m] * B[k, n]; N a multiple of LANES, M any; scratch:
    Runtime.outer_scratch bytes.

    kept: which terms count, ALL, WHERE_A or WHERE_B; where all others are finite that makes no
    difference, and the tiles that look at every factor are left alone.

    Rows in blocks, each summed from zero and added to C. B becomes panels. A piece of A is copied
    into the columns of tiles, unless it is used but once: read where it stands, every k is another
    cache line of the first cache, where the panel is to stay. The copy also spares reading past the
    end of A in a tile that isn't full.
    """
    blocks = (rows + BLOCK_K - 1) // BLOCK_K
    for i in range(blocks):
        k0 = rows * i // blocks
        K = rows * (i + 1) // blocks - k0
        found = 1 * ALL  # a constant alone would be its type
        if kept == WHERE_A and not_finite(at(pointer(b), k0 * b_row), b_row, K, N) != 0:
            found = kept
        if kept == WHERE_B and not_finite(at(pointer(a), k0 * a_row), a_row, K, M) != 0:
            found = kept
        for n0 in range(0, N, BLOCK_N):
            n_end = min(N, n0 + BLOCK_N)
            widest = 1 * VECTORS if N <= 2 * VECTORS * LANES else 1 * OUTER_VECTORS
            panels = ((n_end - n0) // LANES + widest - 1) // widest
            most = most_rows(((n_end - n0) // LANES + panels - 1) // panels)
            for m0 in range(0, M, BLOCK_M):
                live = min(BLOCK_M, M - m0)
                piece, copied = at(pointer(a), k0 * a_row + m0), at(pointer(scratch), BLOCK_K * BLOCK_N)
                # columns of A, of which those from here on are copied
                first = live // most * most if panels <= 2 else 0
                step = K * most + APART
                outer_columns(most, copied, step, at(piece, first), a_row, K, live - first)
                ahead, asks = at(piece, BLOCK_M if m0 + BLOCK_M < M else K * a_row - m0), K
                n = n0
                while n < n_end:
                    left = (n_end - n) // LANES
                    pieces = (left + widest - 1) // widest
                    vectors = (left + pieces - 1) // pieces
                    panel = at(pointer(scratch), (n - n0) * K)
                    if b_row == vectors * LANES:
                        panel = at(pointer(b), k0 * b_row)  # it lies as a panel does
                    elif m0 == 0:
                        for k in range(K):
                            for j in range(0, vectors * LANES, LANES):
                                store(panel, k * vectors * LANES + j, load(pointer(b), (k0 + k) * b_row + n + j))
                    m = 0
                    while m < live:
                        columns, row, tile, many = at(piece, m), a_row, 1 * most, first
                        if m >= first:
                            columns, row, tile, many = copied, 1 * most, step, live - first
                        target = at(pointer(c), (m0 + m) * c_row + n)
                        outer_tiles(
                            found, most, vectors, columns, row, tile, panel, K, target, c_row, many, ahead, a_row, asks
                        )
                        m += many
                        asked = min(asks, (many + most - 1) // most * AHEAD)
                        ahead, asks = at(ahead, asked * a_row), asks - asked
                    n += vectors * LANES
