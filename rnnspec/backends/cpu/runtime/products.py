"""The CPU runtime: matrix products out of register tiles; moves.py has the rest. Generated kernels
call it by address.

In: nothing but int64 arguments (addresses, counts, strides in elements). Out: memory. addresses.py
has the functions compiled once for a dtype and machine and gives their addresses. It knows nothing
of cells, steps in time or threads.

These are texts in Numba's Python, copied into a module for each dtype, where `pointer` makes its
pointers.
"""

from __future__ import annotations

from rnnspec.backends.cpu.machine import ALL, APART, BLOCK_K, BLOCK_M, BLOCK_N, ROW_JOB, host
from rnnspec.backends.cpu.processor import VECTORS
from rnnspec.backends.cpu.runtime.outer_tile import copy_vectors, outer_columns, outer_tiles, rows_ahead
from rnnspec.backends.cpu.runtime.simd import at, get, invoke, min, pointer_int
from rnnspec.backends.cpu.runtime.simd import pointer32 as pointer
from rnnspec.backends.cpu.runtime.tile import most_groups, most_rows, product_tiles

# what the texts below see, with `pointer` above: as they stand they are for float32
LANES, PRODUCT_K, OUTER_VECTORS = host().lanes["float32"], host().product_terms, host().outer_vectors
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
        few = rows <= 2 * most_rows(vectors * many)  # tiles
        segments, s, k0, more, width = get(fields, 0), 0, 0, 0, vectors * LANES
        # one block of K after another: of a long segment, or as many segments as are short
        while s < segments or more == 0:
            K = get(fields, 50 + 4 * s) - k0 if s < segments else 0
            whole, count = min(1, segments), 0
            if not few and K > PRODUCT_K + PRODUCT_K // 2:
                K = count = 1 * PRODUCT_K  # a constant alone would be its type
            elif k0 > 0:
                count = K
            else:
                while s + whole < segments and (
                    few or K + get(fields, 50 + 4 * (s + whole)) <= PRODUCT_K + PRODUCT_K // 2
                ):
                    K += get(fields, 50 + 4 * (s + whole))
                    whole += 1
            product_tiles(rows, vectors, many, fields, panel, group, row, s, whole, k0, count, more, K)
            panel, more = at(panel, K * width), 1
            if count > 0 and k0 + count < get(fields, 50 + 4 * s):
                k0 += count
            else:
                s, k0 = s + whole, 0
        group += many


def outer(a, a_row, b, b_row, rows, M, N, c, c_row, scratch):
    """C[M, N] += the sum over rows k of A[k, m] * B[k, n]; N a multiple of LANES, M any; scratch:
    Runtime.outer_scratch bytes.

    Rows in blocks, each summed from zero and added to C. B becomes panels. Columns of A are copied
    for the tiles, unless they are used but once or twice: where they stand every k is another line
    of the first cache, where the panel is to stay. A tile that isn't full needs the copy, not to
    read past the end of A.
    """
    blocks = (rows + BLOCK_K - 1) // BLOCK_K
    for i in range(blocks):
        k0 = rows * i // blocks
        K = rows * (i + 1) // blocks - k0
        found = 1 * ALL  # a constant alone would be its type
        for n0 in range(0, N, BLOCK_N):
            total = min(N - n0, BLOCK_N) // LANES
            widest = 1 * VECTORS if N <= 2 * VECTORS * LANES else 1 * OUTER_VECTORS
            panels = (total + widest - 1) // widest
            most = most_rows((total + panels - 1) // panels)
            for m0 in range(0, M, BLOCK_M):
                live = min(BLOCK_M, M - m0)
                piece, copied = at(pointer(a), k0 * a_row + m0), at(pointer(scratch), BLOCK_K * BLOCK_N)
                # columns of A, of which those from here on are copied
                first = live // most * most if panels <= 2 else 0
                step = K * most + APART
                outer_columns(most, copied, step, at(piece, first), a_row, K, live - first)
                ahead, turn = at(piece, BLOCK_M if m0 + BLOCK_M < M else K * a_row - m0), 0
                for p in range(panels):
                    before = total * p // panels
                    n, vectors = n0 + before * LANES, total * (p + 1) // panels - before
                    panel, to = at(pointer(scratch), before * LANES * K), at(pointer(c), m0 * c_row + n)
                    if b_row == vectors * LANES:
                        panel = at(pointer(b), k0 * b_row)  # it lies as a panel does
                    elif m0 == 0:
                        copy_vectors(panel, at(pointer(b), k0 * b_row + n), b_row, K, vectors)
                    outer_tiles(
                        found, most, vectors, piece, a_row, most, panel, K, to, c_row, first, ahead, a_row, turn
                    )
                    to, turn = at(to, first * c_row), turn + first // most
                    outer_tiles(
                        found, most, vectors, copied, most, step, panel, K, to, c_row, live - first, ahead, a_row, turn
                    )
                    turn += (live - first + most - 1) // most


def row_sums(table):
    """For each row of a batch the outer products of some jobs: C[row] += the sum over its steps.

    table: how many jobs, their address, the first row and that behind the last, scratch, and the
    address of each row's steps. jobs: ROW_JOB int64 each: A, bytes from row to row, elements from
    step to step, the same of B, M, N, C, bytes from row to row, its row stride, the address of
    `outer` or of `kept_outer`, and what that is told.
    """
    fields = pointer_int(table)
    for row in range(get(fields, 2), get(fields, 3)):
        steps = get(pointer_int(get(fields, 5)), row)
        for number in range(get(fields, 0)):
            job = at(pointer_int(get(fields, 1)), number * ROW_JOB)
            a, b = get(job, 0) + row * get(job, 1), get(job, 3) + row * get(job, 4)
            a_row, b_row, M, N = get(job, 2), get(job, 5), get(job, 6), get(job, 7)
            c, c_row, scratch = get(job, 8) + row * get(job, 9), get(job, 10), get(fields, 4)
            if get(job, 12) == ALL:
                invoke(get(job, 11), a, a_row, b, b_row, steps, M, N, c, c_row, scratch)
            else:
                invoke(get(job, 11), a, a_row, b, b_row, steps, M, N, c, c_row, scratch, get(job, 12))


# `outer` with one more argument, kept: which terms count, ALL, WHERE_A or WHERE_B. Where all others
# are finite that makes no difference, and the tiles that look at every factor are left alone. The
# line of `found` becomes
FOUND = """\
        found = 1 * ALL
        if kept == WHERE_A and not_finite(at(pointer(b), k0 * b_row), b_row, K, N) != 0:
            found = kept
        if kept == WHERE_B and not_finite(at(pointer(a), k0 * a_row), a_row, K, M) != 0:
            found = kept
"""
