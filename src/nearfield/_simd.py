"""Micro-kernels in LLVM vector code, and the exponential: what Numba's own vectoriser does not find.

A neighbourhood's matrix lies column by column in a flat buffer, `A[j * ld + i]` for row i and column j, with `ld` and
the number of rows padded to a multiple of `LANES`. Vectors run down the rows, so that nothing has to be summed across
lanes. LLVM turns a vector of `LANES` numbers into whatever registers the machine has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 8  # rows a vector holds
PANEL = 8  # columns eliminated at a time; the diagonal blocks are PANEL x PANEL, so PANEL == LANES
COLUMNS = 4  # columns whose weights are kept at a time while the gradient is summed; divides LANES


class _Vectors:
    """Loads, stores and arithmetic on vectors of LANES numbers at `pointer + offset`."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.type = ir.VectorType(ir.DoubleType(), LANES)

    def load(self, pointer: Any, offset: Any) -> Any:
        address = self.builder.gep(pointer, [offset])
        return self.builder.load(self.builder.bitcast(address, self.type.as_pointer()), align=8)

    def store(self, value: Any, pointer: Any, offset: Any) -> None:
        address = self.builder.gep(pointer, [offset])
        self.builder.store(value, self.builder.bitcast(address, self.type.as_pointer()), align=8)

    def splat(self, scalar: Any) -> Any:
        single = self.builder.insert_element(
            ir.Constant(self.type, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0)
        )
        mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return self.builder.shuffle_vector(single, ir.Constant(self.type, ir.Undefined), mask)

    def load_splat(self, pointer: Any, offset: Any) -> Any:
        return self.splat(self.builder.load(self.builder.gep(pointer, [offset])))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        name = f"llvm.fma.v{LANES}f64"
        fn = cgutils.get_or_insert_function(
            self.builder.module, ir.FunctionType(self.type, [self.type, self.type, self.type]), name
        )
        return self.builder.call(fn, [a, b, c])

    def fnma(self, a: Any, b: Any, c: Any) -> Any:
        """c - a * b."""
        return self.fma(self.builder.fneg(a), b, c)


def _data(context: Any, builder: Any, array_type: Any, value: Any) -> Any:
    return context.make_array(array_type)(context, builder, value).data


def _eliminate(vectors: int, solve: bool) -> Callable[..., Any]:
    """Make `eliminate(A, ld, i, j, inverse)` for rows i .. i + vectors * LANES of the panel of columns j .. j + PANEL.

    Subtracts the contribution of all columns before j (the left-looking update of a Cholesky factorisation),
    C[i, j] - sum_{p < j0} L[i, p] L[j, p], with the sums kept in registers; with `solve`, also divides by the panel's
    own factorised diagonal block, of which `inverse` holds the reciprocals of the diagonal.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array_type = signature.args[0]
        a = _data(context, builder, array_type, args[0])
        ld, i, j = args[1], args[2], args[3]
        inverse = _data(context, builder, signature.args[4], args[4])
        v = _Vectors(builder)
        index = ld.type

        def const(n: int) -> Any:
            return ir.Constant(index, n)

        def column(c: Any) -> Any:
            return builder.mul(c, ld)

        columns = [column(builder.add(j, const(c))) for c in range(PANEL)]
        rows = [builder.add(i, const(m * LANES)) for m in range(vectors)]
        sums = [
            [cgutils.alloca_once_value(builder, v.load(a, builder.add(columns[c], rows[m]))) for m in range(vectors)]
            for c in range(PANEL)
        ]
        with cgutils.for_range(builder, j) as loop:
            start = column(loop.index)
            left = [v.load(a, builder.add(start, rows[m])) for m in range(vectors)]
            negated = [builder.fneg(x) for x in left]
            top = builder.add(start, j)
            for c in range(PANEL):
                factor = v.load_splat(a, builder.add(top, const(c)))
                for m in range(vectors):
                    builder.store(v.fma(negated[m], factor, builder.load(sums[c][m])), sums[c][m])
        done = [[builder.load(sums[c][m]) for m in range(vectors)] for c in range(PANEL)]
        if solve:
            for c in range(PANEL):
                scale = v.load_splat(inverse, const(c))
                done[c] = [builder.fmul(x, scale) for x in done[c]]
                for later in range(c + 1, PANEL):
                    factor = v.load_splat(a, builder.add(columns[c], builder.add(j, const(later))))
                    done[later] = [v.fnma(x, factor, y) for x, y in zip(done[c], done[later], strict=True)]
        for c in range(PANEL):
            for m in range(vectors):
                v.store(done[c][m], a, builder.add(columns[c], rows[m]))
        return context.get_dummy_value()

    @intrinsic
    def eliminate(typingctx: Any, a: Any, ld: Any, i: Any, j: Any, inverse: Any) -> Any:
        return types.void(a, types.intp, types.intp, types.intp, inverse), codegen

    return eliminate


update_1 = _eliminate(1, solve=False)
eliminate_1 = _eliminate(1, solve=True)
eliminate_2 = _eliminate(2, solve=True)
eliminate_3 = _eliminate(3, solve=True)


def _contract(dims: int, kinds: int) -> Callable[..., Any]:
    """Make `contract(x, ld, d, j, columns, start, stop, weights, sums)`: weighted sums of squared differences.

    For the coordinates d .. d + dims, `x[d * ld + i]`, and the columns j .. j + columns, at most COLUMNS, each with
    `kinds` weights `weights[(w * COLUMNS + c) * ld + i]`, adds weights[w, c, i] * (x[d, i] - x[d, j + c])^2 over i in
    start .. stop (multiples of LANES) and over c to `sums[(d * kinds + w) * LANES + lane]`.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x = _data(context, builder, signature.args[0], args[0])
        ld, d, j, columns, start, stop = args[1:7]
        weights = _data(context, builder, signature.args[7], args[7])
        sums = _data(context, builder, signature.args[8], args[8])
        v = _Vectors(builder)
        index = ld.type

        def const(n: int) -> Any:
            return ir.Constant(index, n)

        lines = [builder.mul(builder.add(d, const(e)), ld) for e in range(dims)]
        first = builder.mul(d, const(kinds * LANES))
        places = [[builder.add(first, const((e * kinds + w) * LANES)) for w in range(kinds)] for e in range(dims)]
        held = [[cgutils.alloca_once_value(builder, v.load(sums, place)) for place in row] for row in places]
        with cgutils.for_range(builder, columns) as loop:
            centres = [v.load_splat(x, builder.add(line, builder.add(j, loop.index))) for line in lines]
            offsets = [builder.mul(builder.add(loop.index, const(w * COLUMNS)), ld) for w in range(kinds)]
            with cgutils.for_range_slice(builder, start, stop, const(LANES), index) as (i, _):
                loaded = [v.load(weights, builder.add(offset, i)) for offset in offsets]
                for line, centre, totals in zip(lines, centres, held, strict=True):
                    difference = builder.fsub(v.load(x, builder.add(line, i)), centre)
                    square = builder.fmul(difference, difference)
                    for weight, total in zip(loaded, totals, strict=True):
                        builder.store(v.fma(weight, square, builder.load(total)), total)
        for row, kept in zip(places, held, strict=True):
            for place, total in zip(row, kept, strict=True):
                v.store(builder.load(total), sums, place)
        return context.get_dummy_value()

    @intrinsic
    def contract(
        typingctx: Any,
        x: Any,
        ld: Any,
        d: Any,
        j: Any,
        columns: Any,
        start: Any,
        stop: Any,
        weights: Any,
        sums: Any,
    ) -> Any:
        n = types.intp
        return types.void(x, n, n, n, n, n, n, weights, sums), codegen

    return contract


contract_1 = _contract(1, kinds=1)
contract_4 = _contract(4, kinds=1)
contract_both_1 = _contract(1, kinds=2)
contract_both_4 = _contract(4, kinds=2)


@intrinsic
def pair_weights(
    typingctx: Any,
    slopes: Any,
    offset: Any,
    ld: Any,
    j: Any,
    start: Any,
    stop: Any,
    u: Any,
    v: Any,
    pairs: Any,
    weights: Any,
    place: Any,
) -> Any:
    """Slopes of the columns j .. j + COLUMNS times sum_p u_p[i] v_p[j] + v_p[i] u_p[j], p = 0 .. pairs.

    weights[place + c * ld + i] from slopes[offset + c * ld + i], which may be the same, for i in start .. stop,
    multiples of LANES; with `u[p * ld + i]` and `v[p * ld + i]`.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given, left, right, out = (_data(context, builder, signature.args[n], args[n]) for n in (0, 6, 7, 9))
        offset, ld, j, start, stop = args[1:6]
        pairs, place = args[8], args[10]
        vec = _Vectors(builder)
        index = ld.type
        zero = ir.Constant(vec.type, [0.0] * LANES)
        columns = [builder.mul(ir.Constant(index, c), ld) for c in range(COLUMNS)]
        sums = [cgutils.alloca_once(builder, vec.type) for _ in columns]
        with cgutils.for_range_slice(builder, start, stop, ir.Constant(index, LANES), index) as (i, _):
            for total in sums:
                builder.store(zero, total)
            with cgutils.for_range(builder, pairs) as loop:
                line = builder.mul(loop.index, ld)
                row, own = builder.add(line, i), builder.add(line, j)
                u_i, v_i = vec.load(left, row), vec.load(right, row)
                for c, total in enumerate(sums):
                    at = builder.add(own, ir.Constant(index, c))
                    part = vec.fma(u_i, vec.load_splat(right, at), builder.load(total))
                    builder.store(vec.fma(v_i, vec.load_splat(left, at), part), total)
            for column, total in zip(columns, sums, strict=True):
                at = builder.add(column, i)
                slope = vec.load(given, builder.add(offset, at))
                vec.store(builder.fmul(slope, builder.load(total)), out, builder.add(place, at))
        return context.get_dummy_value()

    n = types.intp
    return types.void(slopes, n, n, n, n, n, u, v, n, weights, n), codegen


def _squares(vectors: int) -> Callable[..., Any]:
    """Make `squares(x, ld, d, j, i, r2)`: r2[i] = sum_e (x[e, i] - x[e, j])^2, for vectors * LANES rows from i."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x = _data(context, builder, signature.args[0], args[0])
        ld, d, j, i = args[1:5]
        r2 = _data(context, builder, signature.args[5], args[5])
        v = _Vectors(builder)
        steps = [ir.Constant(ld.type, m * LANES) for m in range(vectors)]
        sums = [cgutils.alloca_once_value(builder, ir.Constant(v.type, [0.0] * LANES)) for _ in steps]
        with cgutils.for_range(builder, d) as loop:
            line = builder.mul(loop.index, ld)
            centre = v.load_splat(x, builder.add(line, j))
            row = builder.add(line, i)
            for step, total in zip(steps, sums, strict=True):
                difference = builder.fsub(v.load(x, builder.add(row, step)), centre)
                builder.store(v.fma(difference, difference, builder.load(total)), total)
        for step, total in zip(steps, sums, strict=True):
            v.store(builder.load(total), r2, builder.add(i, step))
        return context.get_dummy_value()

    @intrinsic
    def squares(typingctx: Any, x: Any, ld: Any, d: Any, j: Any, i: Any, r2: Any) -> Any:
        n = types.intp
        return types.void(x, n, n, n, n, r2), codegen

    return squares


squares_1 = _squares(1)
squares_4 = _squares(4)


@intrinsic
def solve_panel(typingctx: Any, a: Any, ld: Any, j: Any, m: Any, row: Any, out: Any) -> Any:
    """Back substitution, L' W = S, for the panel of columns j .. j + PANEL and LANES right-hand sides at once.

    The lower triangle of `a` holds L (m x m), the LANES rows from `row` on hold S', and `out[i * LANES + lane]` holds
    the rows of W, known for i >= j + PANEL.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        matrix, w = (_data(context, builder, signature.args[n], args[n]) for n in (0, 5))
        ld, j, m, row = args[1:5]
        v = _Vectors(builder)
        index = ld.type

        def own(c: int) -> Any:
            return builder.add(j, ir.Constant(index, c))

        def line(i: Any) -> Any:
            return builder.mul(i, ir.Constant(index, LANES))

        columns = [builder.mul(own(c), ld) for c in range(PANEL)]
        sums = [cgutils.alloca_once_value(builder, v.load(matrix, builder.add(start, row))) for start in columns]
        with cgutils.for_range_slice(builder, own(PANEL), m, ir.Constant(index, 1), index) as (i, _):
            known = builder.fneg(v.load(w, line(i)))
            for start, total in zip(columns, sums, strict=True):
                factor = v.load_splat(matrix, builder.add(start, i))
                builder.store(v.fma(known, factor, builder.load(total)), total)
        done = [builder.load(total) for total in sums]
        for c in reversed(range(PANEL)):
            pivot = builder.load(builder.gep(matrix, [builder.add(columns[c], own(c))]))
            done[c] = builder.fmul(done[c], v.splat(builder.fdiv(ir.Constant(ir.DoubleType(), 1.0), pivot)))
            v.store(done[c], w, line(own(c)))
            for before in range(c):
                factor = v.load_splat(matrix, builder.add(columns[before], own(c)))
                done[before] = v.fnma(done[c], factor, done[before])
        return context.get_dummy_value()

    n = types.intp
    return types.void(a, n, n, n, n, out), codegen


@intrinsic
def _power_of_two(typingctx: Any, n: Any) -> Any:
    """2^n as a float64, by writing n into the exponent bits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        exponent = builder.sext(builder.add(args[0], ir.Constant(ir.IntType(32), 1023)), ir.IntType(64))
        return builder.bitcast(builder.shl(exponent, ir.Constant(ir.IntType(64), 52)), ir.DoubleType())

    return types.float64(types.int32), codegen


@njit(inline="always")
def exp_nonpositive(x):
    """exp(x) for x <= 0, within a few units in the last place; stays at exp(-87) = 1.6e-38 below -87.

    x = n ln 2 + r with |r| <= ln 2 / 2, a Taylor polynomial in r, and 2^n through the exponent bits. Numba calls the C
    library for each math.exp, which the compiler cannot vectorise; this it can.
    """
    x = max(x, -87.0)
    n = math.floor(x * 1.4426950408889634 + 0.5)
    r = (x - n * 0.693359375) + n * 2.12194440054690583e-4
    p = r * (1 / 6227020800) + 1 / 479001600
    p = p * r + 1 / 39916800
    p = p * r + 1 / 3628800
    p = p * r + 1 / 362880
    p = p * r + 1 / 40320
    p = p * r + 1 / 5040
    p = p * r + 1 / 720
    p = p * r + 1 / 120
    p = p * r + 1 / 24
    p = p * r + 1 / 6
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return p * _power_of_two(np.int32(n))
