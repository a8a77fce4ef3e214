"""Fields of an instruction of a program."""

(
    OP, FLAG, OUT, OUT_COLUMNS, A, B, ROWS, COLUMNS, A_ROWS, A_COLUMNS, B_ROWS, B_COLUMNS,
    A_LOWER, B_LOWER, SCALAR, SCALAR_2, KEY, SLOT, COUNT, COPIES, WORK, START, FIRST, LAST,
) = range(24)  # fmt: skip
"""Fields of an instruction.

They are its code and flag; the rows of the buffer where the output and the inputs A and B begin;
their sizes (the output may be some columns of a larger matrix); whether A and B are lower
triangular; the indices of two scalars and of a key; three integers of the node; scratch rows;
the number of normals before its own; and the instructions of an activation.
"""
SIZE = 24
