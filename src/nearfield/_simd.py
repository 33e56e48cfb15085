"""Micro-kernels in LLVM vector code, and the exponential: what Numba's own vectoriser does not find.

A neighbourhood's matrix lies column by column in a flat buffer, `a[j * ld + i]` for row i and column j, with the number
of rows padded to a multiple of `LANES`. Vectors run down the rows, so that hardly anything has to be summed across
lanes. LLVM turns a vector of `LANES` numbers into whatever registers the machine has.

Each kernel works on a tile of LANES rows and COLUMNS columns (or coordinates) that stays in registers: one load of a
vector serves all columns, and there are enough independent sums to keep the units busy. How large the tile is changes
no bit of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils, config
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic


def _register_bits() -> int:
    """Width of a vector register; where it is narrower, LLVM cuts ours into several.

    Of the processor that Numba compiles for, which NUMBA_CPU_FEATURES can make another than the one it runs on.
    """
    asked = vars(config)["CPU_FEATURES"]  # which Numba sets when it is loaded, so that mypy sees no such name
    features = get_host_cpu_features() if asked is None else asked
    return 512 if "+avx512f" in features.split(",") else 256


REGISTER_BITS = _register_bits()
LANES = 8  # rows a vector holds
PANEL = 8  # columns eliminated at a time; the diagonal blocks are PANEL x PANEL, so PANEL == LANES
# Columns of a tile: eight registers of sums, be they of 64 bytes or pairs of 32 bytes. Divides LANES.
COLUMNS = REGISTER_BITS // 64


class Vectors:
    """Loads, stores and arithmetic on vectors of LANES numbers at `pointer + offset`."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.type = ir.VectorType(ir.DoubleType(), LANES)
        self.zero = ir.Constant(self.type, [0.0] * LANES)

    def load(self, pointer: Any, offset: Any) -> Any:
        address = self.builder.gep(pointer, [offset])
        return self.builder.load(self.builder.bitcast(address, self.type.as_pointer()), align=8)

    def store(self, value: Any, pointer: Any, offset: Any) -> None:
        address = self.builder.gep(pointer, [offset])
        self.builder.store(value, self.builder.bitcast(address, self.type.as_pointer()), align=8)

    def splat(self, scalar: Any) -> Any:
        single = self.builder.insert_element(self.zero, scalar, ir.Constant(ir.IntType(32), 0))
        return self.splat_lane(single, 0)

    def splat_lane(self, vector: Any, lane: int) -> Any:
        return self.shuffle(vector, [lane] * LANES)

    def shuffle(self, vector: Any, lanes: list[int]) -> Any:
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
        return self.builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)

    def load_splat(self, pointer: Any, offset: Any) -> Any:
        return self.splat(self.builder.load(self.builder.gep(pointer, [offset])))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        fn = cgutils.get_or_insert_function(
            self.builder.module, ir.FunctionType(self.type, [self.type] * 3), f"llvm.fma.v{LANES}f64"
        )
        return self.builder.call(fn, [a, b, c])

    def fnma(self, a: Any, b: Any, c: Any) -> Any:
        """c - a * b."""
        return self.fma(self.builder.fneg(a), b, c)

    def sqrt(self, a: Any) -> Any:
        fn = cgutils.get_or_insert_function(
            self.builder.module, ir.FunctionType(self.type, [self.type]), f"llvm.sqrt.v{LANES}f64"
        )
        return self.builder.call(fn, [a])

    def total(self, vector: Any) -> Any:
        """The sum over the lanes, by halves."""
        size = LANES
        while size > 1:
            size //= 2
            low, high = self.shuffle(vector, list(range(size))), self.shuffle(vector, list(range(size, 2 * size)))
            vector = self.builder.fadd(low, high)
        return self.builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


def data(context: Any, builder: Any, signature: Any, args: Any, n: int) -> Any:
    """The address of the first number of argument n, an array."""
    return context.make_array(signature.args[n])(context, builder, args[n]).data


def sums(builder: Any, start: list[Any]) -> list[Any]:
    """Variables that hold running sums; LLVM keeps them in registers."""
    return [cgutils.alloca_once_value(builder, value) for value in start]


# --- the Cholesky factorisation -------------------------------------------------------------------------------------


def _eliminate(solve: bool) -> Callable[..., Any]:
    """Make `eliminate(a, ld, i, j, inverse, first)` for the rows i .. i + LANES of the columns j .. j + COLUMNS.

    Subtracts the contribution of all columns before `last` (the left-looking update of a Cholesky factorisation),
    C[i, j] - sum_{p < last} L[i, p] L[j, p], with the sums kept in registers. With `solve`, last = j, and divides by
    the columns' own factorised diagonal block, of which inverse[first:] holds the reciprocals of the diagonal.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a, inverse = (data(context, builder, signature, args, n) for n in (0, 4))
        ld, i, j, first = args[1], args[2], args[3], args[5]
        v = Vectors(builder)

        def plus(x: Any, n: int) -> Any:
            return builder.add(x, ir.Constant(x.type, n))

        columns = [builder.mul(plus(j, c), ld) for c in range(COLUMNS)]
        places = [builder.add(column, i) for column in columns]
        held = sums(builder, [v.load(a, place) for place in places])
        with cgutils.for_range(builder, j if solve else first) as loop:
            start = builder.mul(loop.index, ld)
            negated = builder.fneg(v.load(a, builder.add(start, i)))
            top = builder.add(start, j)
            for c, total in enumerate(held):
                factor = v.load_splat(a, plus(top, c))
                builder.store(v.fma(negated, factor, builder.load(total)), total)
        done = [builder.load(total) for total in held]
        if solve:
            for c in range(COLUMNS):
                done[c] = builder.fmul(done[c], v.load_splat(inverse, plus(first, c)))
                for later in range(c + 1, COLUMNS):
                    factor = v.load_splat(a, plus(builder.add(columns[c], j), later))
                    done[later] = v.fnma(done[c], factor, done[later])
        for place, value in zip(places, done, strict=True):
            v.store(value, a, place)
        return context.get_dummy_value()

    @intrinsic
    def eliminate(typingctx: Any, a: Any, ld: Any, i: Any, j: Any, inverse: Any, first: Any) -> Any:
        n = types.intp
        return types.void(a, n, n, n, inverse, n), codegen

    return eliminate


update = _eliminate(solve=False)  # `first` is how many columns contribute, `inverse` is not used
eliminate = _eliminate(solve=True)


@intrinsic
def factorise_diagonal(typingctx: Any, a: Any, ld: Any, j: Any, inverse: Any) -> Any:
    """Cholesky of the PANEL x PANEL block at (j, j), in place; False if it is not positive definite.

    `inverse` gets the reciprocals of the diagonal. The columns are divided by their roots only at the end: then a pivot
    waits for one division, not for a root too. An infinite pivot leaves zeros below it.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        matrix, reciprocals = (data(context, builder, signature, args, n) for n in (0, 3))
        ld, j = args[1], args[2]
        v = Vectors(builder)
        zero, one = ir.Constant(ir.DoubleType(), 0.0), ir.Constant(ir.DoubleType(), 1.0)

        def lane(n: int) -> Any:
            return ir.Constant(ir.IntType(32), n)

        places = [builder.add(builder.mul(builder.add(j, ir.Constant(j.type, c)), ld), j) for c in range(PANEL)]
        columns = [v.load(matrix, place) for place in places]
        pivots, positive = v.zero, ir.Constant(ir.IntType(1), 1)
        for c in range(PANEL):
            pivot = builder.extract_element(columns[c], lane(c))
            positive = builder.and_(positive, builder.fcmp_ordered(">", pivot, zero))
            pivots = builder.insert_element(pivots, pivot, lane(c))
            factors = builder.fmul(columns[c], v.splat(builder.fdiv(one, pivot)))
            for later in range(c + 1, PANEL):
                columns[later] = v.fnma(columns[c], v.splat_lane(factors, later), columns[later])
        roots = v.sqrt(pivots)
        inverses = builder.fdiv(ir.Constant(v.type, [1.0] * LANES), roots)
        v.store(inverses, reciprocals, ir.Constant(j.type, 0))
        for c in range(PANEL):
            done = builder.fmul(columns[c], v.splat_lane(inverses, c))
            done = builder.insert_element(done, builder.extract_element(roots, lane(c)), lane(c))
            v.store(done, matrix, places[c])
        return positive

    n = types.intp
    return types.boolean(a, n, n, inverse), codegen


@intrinsic
def clear_triangle(typingctx: Any, a: Any, place: Any, ld: Any) -> Any:
    """Zeros on and above the diagonal of the LANES x LANES block that begins at a[place]."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        matrix, (place, ld) = data(context, builder, signature, args, 0), args[1:]
        v = Vectors(builder)
        for c in range(LANES):
            keep = ir.Constant(ir.VectorType(ir.IntType(1), LANES), [int(i > c) for i in range(LANES)])
            at = builder.add(place, builder.mul(ld, ir.Constant(ld.type, c)))
            v.store(builder.select(keep, v.load(matrix, at), v.zero), matrix, at)
        return context.get_dummy_value()

    return types.void(a, types.intp, types.intp), codegen


@intrinsic
def mirror_block(typingctx: Any, a: Any, ld: Any, i: Any, j: Any) -> Any:
    """The LANES x LANES block at row j and column i of a symmetric matrix from the one at row i and column j.

    Where i = j, its upper triangle, which holds zeros as the diagonal does, from its lower one.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        matrix, (ld, i, j) = data(context, builder, signature, args, 0), args[1:]
        v = Vectors(builder)

        def places(row: Any, column: Any) -> list[Any]:
            return [
                builder.add(builder.mul(builder.add(column, ir.Constant(column.type, c)), ld), row)
                for c in range(LANES)
            ]

        own = [v.load(matrix, place) for place in places(i, j)]
        turned, step = list(own), 1
        while step < LANES:  # swaps one bit of the number of the column with that of the lane
            low = [lane if not lane & step else LANES + lane - step for lane in range(LANES)]
            high = [lane + step if not lane & step else LANES + lane for lane in range(LANES)]
            for c in (c for c in range(LANES) if not c & step):
                pair = turned[c], turned[c + step]
                for column, lanes in ((c, low), (c + step, high)):
                    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), lanes)
                    turned[column] = builder.shuffle_vector(*pair, mask)
            step *= 2
        diagonal = builder.icmp_signed("==", i, j)
        for place, column, before in zip(places(j, i), turned, own, strict=True):
            both = builder.select(diagonal, builder.fadd(column, before), column)
            v.store(both, matrix, place)
        return context.get_dummy_value()

    n = types.intp
    return types.void(a, n, n, n), codegen


@intrinsic
def solve_panel(typingctx: Any, a: Any, ld: Any, j: Any, m: Any, row: Any, out: Any) -> Any:
    """Back substitution, L' W = S, for the panel of columns j .. j + PANEL and LANES right-hand sides at once.

    The lower triangle of `a` holds L (m x m), the LANES rows from `row` on hold S', and `out[i * LANES + lane]` holds
    the rows of W, known for i >= j + PANEL.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        matrix, w = (data(context, builder, signature, args, n) for n in (0, 5))
        ld, j, m, row = args[1:5]
        v = Vectors(builder)
        index = ld.type

        def own(c: int) -> Any:
            return builder.add(j, ir.Constant(index, c))

        def line(i: Any) -> Any:
            return builder.mul(i, ir.Constant(index, LANES))

        columns = [builder.mul(own(c), ld) for c in range(PANEL)]
        held = sums(builder, [v.load(matrix, builder.add(start, row)) for start in columns])
        with cgutils.for_range_slice(builder, own(PANEL), m, ir.Constant(index, 1), index) as (i, _):
            known = builder.fneg(v.load(w, line(i)))
            for start, total in zip(columns, held, strict=True):
                factor = v.load_splat(matrix, builder.add(start, i))
                builder.store(v.fma(known, factor, builder.load(total)), total)
        done = [builder.load(total) for total in held]
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


# --- distances, and sums over pairs ---------------------------------------------------------------------------------


def _squares(vectors: int, columns: int) -> Callable[..., Any]:
    """Make `squares(x, ld, d, i, j, out, place, step)`: squared distances, out[place + c * step + l] for l rows.

    Between the rows i .. i + vectors * LANES and j .. j + columns, over the coordinates x[e * ld + i], e < d.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, out = (data(context, builder, signature, args, n) for n in (0, 5))
        ld, d, i, j, place, step = (args[n] for n in (1, 2, 3, 4, 6, 7))
        v = Vectors(builder)

        def plus(at: Any, n: int) -> Any:
            return builder.add(at, ir.Constant(at.type, n))

        held = [sums(builder, [v.zero] * vectors) for _ in range(columns)]
        with cgutils.for_range(builder, d) as loop:
            line = builder.mul(loop.index, ld)
            loaded = [v.load(x, plus(builder.add(line, i), m * LANES)) for m in range(vectors)]
            for c, column in enumerate(held):
                centre = v.load_splat(x, plus(builder.add(line, j), c))
                for vector, total in zip(loaded, column, strict=True):
                    difference = builder.fsub(vector, centre)
                    builder.store(v.fma(difference, difference, builder.load(total)), total)
        for c, column in enumerate(held):
            start = builder.add(place, builder.mul(step, ir.Constant(step.type, c)))
            for m, total in enumerate(column):
                v.store(builder.load(total), out, plus(start, m * LANES))
        return context.get_dummy_value()

    @intrinsic
    def squares(typingctx: Any, x: Any, ld: Any, d: Any, i: Any, j: Any, out: Any, place: Any, step: Any) -> Any:
        n = types.intp
        return types.void(x, n, n, n, n, out, n, n), codegen

    return squares


squares = _squares(1, COLUMNS)
squares_of_one = _squares(1, 1)
squares_of_one_4 = _squares(4, 1)


@intrinsic
def pair_weights(
    typingctx: Any,
    slopes: Any,
    ld: Any,
    j: Any,
    start: Any,
    stop: Any,
    u: Any,
    v: Any,
    pairs: Any,
    weights: Any,
    totals: Any,
) -> Any:
    """Slopes of the columns j .. j + 4 times sum_p u_p[i] v_p[j] + v_p[i] u_p[j], p = 0 .. pairs, and their totals.

    weights[(j + c) * ld + i] from slopes[(j + c) * ld + i], which may be the same, for i in start .. stop, multiples of
    LANES; with `u[p * ld + i]` and `v[p * ld + i]`. Every weight is added to totals[i] and to totals[j + c].
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given, left, right, out, both = (data(context, builder, signature, args, n) for n in (0, 5, 6, 8, 9))
        ld, j, start, stop = args[1:5]
        vec = Vectors(builder)
        index = ld.type

        def plus(at: Any, n: int) -> Any:
            return builder.add(at, ir.Constant(index, n))

        columns = [builder.mul(plus(j, c), ld) for c in range(4)]
        held = [cgutils.alloca_once(builder, vec.type) for _ in columns]
        below = sums(builder, [vec.zero for _ in columns])
        with cgutils.for_range_slice(builder, start, stop, ir.Constant(index, LANES), index) as (i, _):
            for total in held:
                builder.store(vec.zero, total)
            with cgutils.for_range(builder, args[7]) as loop:
                line = builder.mul(loop.index, ld)
                row, own = builder.add(line, i), builder.add(line, j)
                u_i, v_i = vec.load(left, row), vec.load(right, row)
                for c, total in enumerate(held):
                    part = vec.fma(u_i, vec.load_splat(right, plus(own, c)), builder.load(total))
                    builder.store(vec.fma(v_i, vec.load_splat(left, plus(own, c)), part), total)
            across = vec.load(both, i)
            for column, total, down in zip(columns, held, below, strict=True):
                at = builder.add(column, i)
                weight = builder.fmul(vec.load(given, at), builder.load(total))
                vec.store(weight, out, at)
                across = builder.fadd(across, weight)
                builder.store(builder.fadd(builder.load(down), weight), down)
            vec.store(across, both, i)
        for c, down in enumerate(below):
            place = builder.gep(both, [plus(j, c)])
            builder.store(builder.fadd(builder.load(place), vec.total(builder.load(down))), place)
        return context.get_dummy_value()

    n = types.intp
    return types.void(slopes, n, n, n, n, u, v, n, weights, totals), codegen


@intrinsic
def contract_products(
    typingctx: Any,
    weights: Any,
    ld: Any,
    i: Any,
    totals: Any,
    near: Any,
    x: Any,
    step: Any,
    m: Any,
    e: Any,
    out: Any,
) -> Any:
    """out[(e + c) * LANES + lane] += x_i (totals_i x_i - 2 sum_{j < i + LANES} weights_ij x_j - 2 near_i x_m).

    For the rows i .. i + LANES and COLUMNS coordinates x[(e + c) * step + i]; weights[j * ld + i].
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        w, both, cross, points, found = (data(context, builder, signature, args, n) for n in (0, 3, 4, 5, 9))
        ld, i, step, m, e = (args[n] for n in (1, 2, 6, 7, 8))
        v = Vectors(builder)

        def plus(at: Any, n: int) -> Any:
            return builder.add(at, ir.Constant(at.type, n))

        lines = [builder.mul(plus(e, c), step) for c in range(COLUMNS)]
        own_near = v.load(cross, i)
        held = sums(builder, [builder.fmul(own_near, v.load_splat(points, builder.add(line, m))) for line in lines])
        with cgutils.for_range(builder, plus(i, LANES)) as loop:
            weight = v.load(w, builder.add(builder.mul(loop.index, ld), i))
            for line, total in zip(lines, held, strict=True):
                factor = v.load_splat(points, builder.add(line, loop.index))
                builder.store(v.fma(weight, factor, builder.load(total)), total)
        whole = v.load(both, i)
        minus_two = ir.Constant(v.type, [-2.0] * LANES)
        for c, (line, total) in enumerate(zip(lines, held, strict=True)):
            place = builder.mul(plus(e, c), ir.Constant(e.type, LANES))
            own = v.load(points, builder.add(line, i))
            inner = v.fma(minus_two, builder.load(total), builder.fmul(whole, own))
            v.store(v.fma(own, inner, v.load(found, place)), found, place)
        return context.get_dummy_value()

    n = types.intp
    return types.void(weights, n, n, totals, near, x, n, n, n, out), codegen


@intrinsic
def products(typingctx: Any, weights: Any, ld: Any, i: Any, m: Any, x: Any, step: Any, e: Any, out: Any) -> Any:
    """out[(e + c) * step + i] = sum_{j < m} weights_ij x_j, for the rows i .. i + LANES and COLUMNS coordinates.

    With weights[j * ld + i] and the coordinates x[(e + c) * step + j].
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        w, points, found = (data(context, builder, signature, args, n) for n in (0, 4, 7))
        ld, i, m, step, e = (args[n] for n in (1, 2, 3, 5, 6))
        v = Vectors(builder)
        lines = [builder.mul(builder.add(e, ir.Constant(e.type, c)), step) for c in range(COLUMNS)]
        held = sums(builder, [v.zero] * COLUMNS)
        with cgutils.for_range(builder, m) as loop:
            weight = v.load(w, builder.add(builder.mul(loop.index, ld), i))
            for line, total in zip(lines, held, strict=True):
                factor = v.load_splat(points, builder.add(line, loop.index))
                builder.store(v.fma(weight, factor, builder.load(total)), total)
        for line, total in zip(lines, held, strict=True):
            v.store(builder.load(total), found, builder.add(line, i))
        return context.get_dummy_value()

    n = types.intp
    return types.void(weights, n, n, n, x, n, n, out), codegen


@intrinsic
def contract_differences(
    typingctx: Any,
    weights: Any,
    place: Any,
    ld: Any,
    columns: Any,
    start: Any,
    stop: Any,
    x: Any,
    step: Any,
    j: Any,
    e: Any,
    out: Any,
) -> Any:
    """out[(e + c) * LANES + lane] += the sum of weights_ij (x_i - x_j)^2 over `columns` columns from j on.

    For the rows i in start .. stop, multiples of LANES, and four coordinates x[(e + c) * step + i];
    weights[place + ld * (column - j) + i].
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        w, points, found = (data(context, builder, signature, args, n) for n in (0, 6, 10))
        place, ld, columns, start, stop = args[1:6]
        step, j, e = args[7:10]
        v = Vectors(builder)

        def plus(at: Any, n: int) -> Any:
            return builder.add(at, ir.Constant(at.type, n))

        lines = [builder.mul(plus(e, c), step) for c in range(4)]
        places = [builder.mul(plus(e, c), ir.Constant(e.type, LANES)) for c in range(4)]
        held = sums(builder, [v.load(found, at) for at in places])
        with cgutils.for_range(builder, columns) as loop:
            centres = [v.load_splat(points, builder.add(line, builder.add(j, loop.index))) for line in lines]
            column = builder.add(place, builder.mul(loop.index, ld))
            with cgutils.for_range_slice(builder, start, stop, ir.Constant(start.type, LANES), start.type) as (i, _):
                weight = v.load(w, builder.add(column, i))
                for line, centre, total in zip(lines, centres, held, strict=True):
                    difference = builder.fsub(v.load(points, builder.add(line, i)), centre)
                    weighted = builder.fmul(weight, difference)
                    builder.store(v.fma(weighted, difference, builder.load(total)), total)
        for at, total in zip(places, held, strict=True):
            v.store(builder.load(total), found, at)
        return context.get_dummy_value()

    n = types.intp
    return types.void(weights, n, n, n, n, n, x, n, n, n, out), codegen


@intrinsic
def lane_total(typingctx: Any, x: Any, place: Any) -> Any:
    """The sum of x[place : place + LANES], by halves."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        v = Vectors(builder)
        return v.total(v.load(data(context, builder, signature, args, 0), args[1]))

    return types.float64(x, types.intp), codegen


# --- the exponential ------------------------------------------------------------------------------------------------

FAR = 126.0  # beyond it powers of two stay at 2^-126 = 1.2e-38
_SHIFT = 6755399441055744.0  # 1.5 * 2^52: a small number added to it is rounded to an integer, in the lowest bits


@intrinsic
def _power_of_two(typingctx: Any, shifted: Any) -> Any:
    """2^n as a float64 from _SHIFT + n, by moving the lowest bits into the exponent."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        integer = ir.IntType(64)
        exponent = builder.add(builder.bitcast(args[0], integer), ir.Constant(integer, 1023))
        return builder.bitcast(builder.shl(exponent, ir.Constant(integer, 52)), ir.DoubleType())

    return types.float64(types.float64), codegen


@njit(inline="always")
def power_below_one(y):
    """2^-y for y >= 0, within two units in the last place; stays at 2^-126 beyond FAR.

    -y = n - g with n an integer and |g| <= 1/2, a polynomial for 2^-g, and 2^n through the exponent bits. Numba calls
    the C library for each math.exp, which the compiler cannot vectorise; this it can. The polynomial is
    1 - g ln 2 + g^2 q(g), with q from interpolation at Chebyshev's points, right to 3e-17; it is summed by pairs, not
    term by term, where every step would wait for the one before.
    """
    y = min(y, FAR)
    shifted = _SHIFT - y
    g = y + (shifted - _SHIFT)
    g2 = g * g
    g4 = g2 * g2
    low = (0.24022650695910075 - 0.05550410866482158 * g) + (0.009618129107618665 - 0.0013333558146423213 * g) * g2
    high = (0.00015403530424776529 - 1.5252733820795803e-05 * g) + (
        1.3215451633221434e-06 - 1.0178067267449427e-07 * g
    ) * g2
    q = (low + high * g4) + (7.070977866508168e-09 - 4.454103410587056e-10 * g) * (g4 * g4)
    return ((1.0 - 0.6931471805599453 * g) + q * g2) * _power_of_two(shifted)


@njit(inline="always")
def exp_nonpositive(x):
    """exp(x) for x <= 0, to 1e-14 of it; stays at 1.2e-38 below -87."""
    return power_below_one(-1.4426950408889634 * x)
