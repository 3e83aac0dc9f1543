"""The program dojo: programs as text, moves that keep their meaning, and C generated from them.

ir, affine      the tree of scopes and operations, and the laws of its structure
text            the canonical text: to_text, parse
surgery         reach and rewrite parts of a program
access          ranges, distinct elements, coverage, the homes of temporaries
dependence      distances between the iterations of two accesses
interpret       the reference interpreter, which illegal programs do not survive
emit_c          C from programs; c_scopes, c_text, c_math are its parts
operators       start programs with their references, inputs, tolerances and floors
"""
