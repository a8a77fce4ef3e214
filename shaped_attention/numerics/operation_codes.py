"""Codes of the operations of a graph in instructions, as globals of compiled code."""

from __future__ import annotations

from shaped_attention.numerics.graph import OPERATIONS

CODE = {name: number for number, name in enumerate(OPERATIONS)}

NORMAL = CODE["normal"]
WISHART = CODE["wishart"]
ACTIVATED_GRAM = CODE["activated_gram"]
MULTIPLY_NN = CODE["multiply_nn"]
MULTIPLY_NT = CODE["multiply_nt"]
MULTIPLY_TN = CODE["multiply_tn"]
GRAM = CODE["gram"]
COGRAM = CODE["cogram"]
COMBINE = CODE["combine"]
TIMES = CODE["times"]
OVER = CODE["over"]
SCALE = CODE["scale"]
SHIFT = CODE["shift"]
TRANSPOSE = CODE["transpose"]
RESHAPE = CODE["reshape"]
COLUMNS = CODE["columns"]
CONCATENATE = CODE["concatenate"]
ROW_SUMS = CODE["row_sums"]
COLUMN_SUMS = CODE["column_sums"]
ROW_SQUARES = CODE["row_squares"]
DIAGONAL = CODE["diagonal"]
UNIT_ROWS = CODE["unit_rows"]
ROTATE = CODE["rotate"]
SOFTMAX = CODE["softmax"]
SYMMETRIC = CODE["symmetric"]
LOWER = CODE["lower"]
CHOLESKY = CODE["cholesky"]
ARC_COSINE = CODE["arc_cosine"]
SQRT = CODE["sqrt"]
EXP = CODE["exp"]
TANH = CODE["tanh"]
NORMAL_CDF = CODE["normal_cdf"]
SIGMOID = CODE["sigmoid"]
SOFTPLUS = CODE["softplus"]
LEAKY = CODE["leaky"]
