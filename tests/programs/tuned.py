"""Schedules that take start programs to the forms a performance engineer would write.

Each holds for all extents that its splits divide; `EXTENTS` are the smallest of interest. A name
is that of an operator, or of an operator and a variant. With one thread what is marked p is a
plain loop, so a schedule serves any number of threads.
"""

EXTENTS = {
    "multiply": {"elements": 8192},
    "multiply streamed": {"elements": 8192},
    "row_sum": {"rows": 4, "cols": 128},
    "softmax": {"rows": 4, "cols": 8},
    "attention_scores": {"heads": 2, "queries": 3, "keys": 16},
    "layer_norm": {"rows": 4, "cols": 128},
    "batch_norm_training": {"n": 2, "c": 3, "h": 8, "w": 16},
    "matmul": {"m": 16, "n": 64, "k": 6},
    "linear_relu": {"m": 16, "n": 64, "k": 32},
    "conv2d": {"n": 2, "k": 64, "c": 2, "h": 3, "w": 28},
    "depthwise_conv2d": {"n": 2, "c": 3, "h": 8, "w": 8},
}

# 8 x 32 accumulators in registers across k: what follows the fusion of all that a result needs
_TILE = """
        split 0 8; split 0.0.0 32; interchange 0.0; interchange 0;
        fission 0.0.0.0 1; fission 0.0.0.1 1; fission 0.0.0 1; fission 0.0.1 1;
        interchange 0.0.1.0; interchange 0.0.1;
        split_dim c 0 8; split_dim c 2 32; reuse_dim c 0; reuse_dim c 2; place c reg;"""
_MARKED_TILE = """
        vectorise 0.1.0.0; unroll 0.1.0; vectorise 0.1.1.0.0; unroll 0.1.1.0;
        vectorise 0.1.2.0; unroll 0.1.2; parallelise 0"""

SCHEDULES = {
    "multiply": "split 0 4096; vectorise 0.0; parallelise 0",
    # for arrays that no cache holds: what is stored is not read first
    "multiply streamed": "place z nt; split 0 4096; vectorise 0.0; parallelise 0",
    # four vectors of partial sums, so that no addition waits for the one before
    "row_sum": """
        fuse 0; fuse 0; reuse_dim s 0; place s reg;
        split 0.1 64; split_reduction 0.1.0.0 1; place t0 reg;
        vectorise 0.1; vectorise 0.2.0; vectorise 0.3; parallelise 0""",
    # one pass over a row for the maximum, one for the exponentials and their sum, one to divide
    "softmax": """
        fuse 0; fuse 0; fuse 0; fuse 0; fuse 0; swap 0.2; fuse 0.3;
        reuse_dim m 0; place m reg; reuse_dim s 0; place s reg; reuse_dim e 0; place e stack;
        vectorise 0.1; vectorise 0.3; vectorise 0.4; parallelise 0""",
    # the same with the scores of a query
    "attention_scores": """
        fuse 0; fuse 0; fuse 0; fuse 0; fuse 0; fuse 0;
        fuse 0.0; fuse 0.0; fuse 0.0; fuse 0.0; fuse 0.0; fuse 0.0;
        swap 0.0.0; fuse 0.0.1; swap 0.0.2; fuse 0.0.3;
        reuse_dim m 0; reuse_dim m 1; place m reg; reuse_dim s 0; reuse_dim s 1; place s reg;
        reuse_dim a 0; reuse_dim a 1; place a stack; reuse_dim e 0; reuse_dim e 1; place e stack;
        vectorise 0.0.1; vectorise 0.0.3; vectorise 0.0.4; parallelise 0""",
    # a row stays in a cache: two reductions with partial sums, then the result
    "layer_norm": """
        fuse 0; fuse 0; fuse 0; fuse 0; fuse 0; fuse 0; fuse 0; swap 0.3; fuse 0.4;
        reuse_dim s 0; place s reg; reuse_dim m 0; place m reg; reuse_dim c 0; place c stack;
        reuse_dim v 0; place v reg; reuse_dim r 0; place r reg;
        split 0.4 64; split_reduction 0.4.0.1 1; split 0.1 64; split_reduction 0.1.0.0 1;
        place t0 reg; place t1 reg;
        vectorise 0.1; vectorise 0.2.0; vectorise 0.3;
        vectorise 0.6; vectorise 0.7.0; vectorise 0.8; vectorise 0.10; parallelise 0""",
    # a channel stays in a cache; differences from its mean are cheaper to take twice than to store
    "batch_norm_training": """
        fuse 0; fuse 0; fuse 0; fuse 0; fuse 0; fuse 0; fuse 0; fuse 0; fuse 0; inline 0.4.0.0;
        reuse_dim s 0; place s reg; reuse_dim m 0; place m reg;
        reuse_dim v 0; place v reg; reuse_dim r 0; place r reg;
        split 0.5.0 64; split_reduction 0.5.0.0.0 1; split 0.1.0 64; split_reduction 0.1.0.0.0 1;
        place t0 reg; place t1 reg;
        vectorise 0.1.0; vectorise 0.1.1.0; vectorise 0.1.2;
        vectorise 0.5.0; vectorise 0.5.1.0; vectorise 0.5.2; vectorise 0.8.0; parallelise 0""",
    # panels of b packed by columns of 32
    "matmul": f"""
        fuse 0; fuse 0; fuse 0.0; fuse 0.0; {_TILE}
        pack 0.0 b; place t0 stack; vectorise 0.0.0; {_MARKED_TILE}""",
    # panels of w transposed by blocks of 16 columns, which a first-level cache holds
    "linear_relu": f"""
        fuse 0; fuse 0; fuse 0; fuse 0.0; fuse 0.0; fuse 0.0; inline 0.0.2; {_TILE}
        pack 0.0 w; place t0 stack; swap_dims t0 0; split 0.0.0 16; interchange 0.0;
        unroll 0.0.0.0; {_MARKED_TILE}""",
    # 14 pixels x 32 filters in registers across channels and taps; filters side by side
    "conv2d": """
        fuse 2; fuse 2; fuse 2.0; fuse 2.0; fuse 2.0.0; fuse 2.0.0; fuse 2.0.0.0; fuse 2.0.0.0;
        split 2.0 32; interchange 2.0.0; split 2.0.0.0.0 14; interchange 2.0.0.0;
        interchange 2.0.0.0.0; split 2.0.0.0.0.0 16; interchange 2.0;
        fission 2.0.0.0.0.0.0 1; fission 2.0.0.0.0.0.1 1;
        fission 2.0.0.0.0.0 1; fission 2.0.0.0.0.1 1;
        fission 2.0.0.0.0 1; fission 2.0.0.0.1 1;
        interchange 2.0.0.0.1.0.0; interchange 2.0.0.0.1.0; interchange 2.0.0.0.1;
        interchange 2.0.0.0.1.0.0.0; interchange 2.0.0.0.1.0.0; interchange 2.0.0.0.1.0;
        interchange 2.0.0.0.1.0.0.0.0; interchange 2.0.0.0.1.0.0.0; interchange 2.0.0.0.1.0.0;
        interchange 2.0.0.0.2; interchange 2.0.0.0.2.0;
        split_dim y 1 32; split_dim y 2 16; split_dim y 5 14;
        reuse_dim y 0; reuse_dim y 1; reuse_dim y 4; reuse_dim y 5;
        swap_dims y 3; swap_dims y 2; place y reg;
        pack 2 f; swap_dims t0 0; swap_dims t0 1; swap_dims t0 2;
        interchange 2; interchange 2.0; interchange 2.0.0;
        vectorise 0.0.0.0; parallelise 0.0; vectorise 1.0.0.0; parallelise 1.0; parallelise 2;
        parallelise 3.0;
        vectorise 3.0.0.0.0.0.0; unroll 3.0.0.0.0.0; unroll 3.0.0.0.0;
        vectorise 3.0.0.0.1.0.0.0.0.0; unroll 3.0.0.0.1.0.0.0.0; unroll 3.0.0.0.1.0.0.0;
        vectorise 3.0.0.0.2.0.0""",
    # an image of one channel is padded on the stack; four rows at a time share what they read
    "depthwise_conv2d": f"""
        fuse 0; fuse 0; fuse 0; fuse 0; fuse 0.0; fuse 0.0; fuse 0.0; fuse 0.0;
        fuse 0.0.2; fuse 0.0.2; split 0.0.2 4; split_dim y 2 4;
        interchange 0.0.2.0.1; interchange 0.0.2.0.1.0; expand 0.0.2.0;
        expand 0.0.2.10.0; expand 0.0.2.10; expand 0.0.2.7.0; expand 0.0.2.7;
        expand 0.0.2.4.0; expand 0.0.2.4; expand 0.0.2.1.0; expand 0.0.2.1;
        {"fuse 0.0.2.0;" * 43}
        reuse_dim p 0; reuse_dim p 1; place p stack;
        reuse_dim y 0; reuse_dim y 1; reuse_dim y 2; reuse_dim y 4; place y reg;
        vectorise 0.0.0.0; vectorise 0.0.1.0; vectorise 0.0.2.0; parallelise 0.0""",
}


def operator_name(name: str) -> str:
    """The operator of a schedule."""
    return name.partition(" ")[0]
