"""Sums of rows of small matrices, LANES float32 or DOUBLES float64 at a time, written in LLVM's own terms.

A compiled loop over sixteen numbers spends more time on finding out whether it may be vectorised than on arithmetic.
Widths here are multiples of LANES or DOUBLES, and sums stay in registers until they are complete.

Numba keeps what it compiled as long as the file of the caller does not change: after a change here, touch network.py.
"""

from __future__ import annotations

from typing import no_type_check

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
DOUBLES = 8
CHAINS = 4  # sums that do not wait for each other; divides both
FLOATS = ir.VectorType(ir.FloatType(), LANES)
VECTORS = {types.float32: FLOATS, types.float64: ir.VectorType(ir.DoubleType(), DOUBLES)}


@no_type_check
def _data(context, builder, kind, value):
    return context.make_array(kind)(context, builder, value).data


@no_type_check
def _at(builder, data, index, vector):
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


@no_type_check
def _load(builder, data, index, vector):
    return builder.load(_at(builder, data, index, vector), align=4)


@no_type_check
def _splat(builder, value, vector):
    if value.type != vector.element:
        value = builder.fpext(value, vector.element)
    nothing = ir.Constant(vector, ir.Undefined)
    order = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(builder.insert_element(nothing, value, ir.IntType(32)(0)), nothing, order)


@no_type_check
def _multiply_add(builder, a, b, total):
    return builder.fadd(total, builder.fmul(a, b, flags=["contract"]), flags=["contract"])


@no_type_check
def _columns(builder, width, vector):
    """A loop over the first column of every vector."""
    intp = width.type
    return cgutils.for_range_slice(builder, intp(0), width, intp(vector.count), inc=True)


@intrinsic
@no_type_check
def add_product(typing, start, x, n, w, row, limit, out):
    """out = max(start + x[:n] w[row : row + n], limit) in the type of w; x is float32, n a multiple of CHAINS."""
    vector = VECTORS[w.dtype]

    def generate(context, builder, signature, args):
        kinds = signature.args
        begin, data, weights, sums = (_data(context, builder, kinds[i], args[i]) for i in (0, 1, 3, 6))
        width = cgutils.unpack_tuple(builder, context.make_array(kinds[3])(context, builder, args[3]).shape)[1]
        intp, n, row = width.type, args[2], args[4]
        with _columns(builder, width, vector) as (column, _):
            totals = [cgutils.alloca_once(builder, vector) for _ in range(CHAINS)]
            builder.store(_load(builder, begin, column, vector), totals[0])
            for total in totals[1:]:
                builder.store(ir.Constant(vector, [0.0] * vector.count), total)
            with cgutils.for_range_slice(builder, intp(0), n, intp(CHAINS), inc=True) as (i, _):
                for k, total in enumerate(totals):
                    at = builder.add(i, intp(k))
                    factor = _splat(builder, builder.load(builder.gep(data, [at])), vector)
                    place = builder.add(builder.mul(builder.add(row, at), width), column)
                    value = _multiply_add(builder, factor, _load(builder, weights, place, vector), builder.load(total))
                    builder.store(value, total)
            one, two, three, four = (builder.load(total) for total in totals)
            result = builder.fadd(builder.fadd(one, two), builder.fadd(three, four))
            low = _splat(builder, args[5], vector)
            result = builder.select(builder.fcmp_ordered(">", low, result), low, result)
            builder.store(result, _at(builder, sums, column, vector), align=4)
        return context.get_dummy_value()

    return types.void(start, x, types.intp, w, types.intp, types.float32, out), generate


@intrinsic
@no_type_check
def add_row(typing, start, factor, w, row, out):
    """out = start + factor w[row]."""

    def generate(context, builder, signature, args):
        kinds = signature.args
        begin, weights, sums = (_data(context, builder, kinds[i], args[i]) for i in (0, 2, 4))
        width = cgutils.unpack_tuple(builder, context.make_array(kinds[2])(context, builder, args[2]).shape)[1]
        first, factor = builder.mul(args[3], width), _splat(builder, args[1], FLOATS)
        with _columns(builder, width, FLOATS) as (column, _):
            value = _load(builder, weights, builder.add(first, column), FLOATS)
            value = _multiply_add(builder, factor, value, _load(builder, begin, column, FLOATS))
            builder.store(value, _at(builder, sums, column, FLOATS), align=4)
        return context.get_dummy_value()

    return types.void(start, types.float32, w, types.intp, out), generate


@intrinsic
@no_type_check
def as_float(typing, bits):
    """The float32 that has these bits."""

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate
