"""The program dojo: programs as text, moves that keep their meaning, and C generated from them.

ir, affine      the tree of scopes and operations, and the laws of its structure
text            the canonical text: to_text, parse
surgery         reach and rewrite parts of a program
access          ranges, distinct elements, coverage, the homes of temporaries
dependence      distances between the iterations of two accesses
interpret       the reference interpreter, which illegal programs do not survive
operators       start programs with their references, inputs, tolerances and floors
moves           what may be done to a program: kinds, with each rule of legality by name
schedule        lists of moves: legal_moves, replay, inverse
walks, claims   random legal walks and their judge; rules switched off (mutants); traps to test on
space, features schedules as a search space, and their structure and n-grams as numbers
encoders        what a learner sees of a program, by name
facts           what was found out about programs is kept
expert          the pass of rules of thumb; draft, register_tiles, storage_plan are its parts
emit_c          C from programs; c_scopes, c_ops, c_lanes, c_text, c_math are its parts
emit_triton     Triton from programs; triton_scopes, triton_registers, triton_values are its parts
triton_kernel   schedules as a kernel for the GPU runner; triton_schedules, triton_device
"""
