"""Small programs in which a wrong move shows: what the shipped operators have too little of.

Values that pass between iterations, scratch that is used again, storage and marks at the edge of
what is legal. Each is legal as it stands.
"""

_WAVEFRONT = """kernel wavefront
in x f32 [4,5]
tmp a f32 [5,6] heap
out z f32 [5,6]
---
5
| 6
| | a[{0},{1}] = 1
4
| 5
| | a[{0}+1,{1}] = a[{0},{1}+1] * 0.5 + x[{0},{1}]
5
| 6
| | z[{0},{1}] = a[{0},{1}]
"""

# parallel along a row, since every element needs one of the row before
_DIAGONAL = """kernel diagonal
in x f32 [4,5]
tmp a f32 [5,6] heap
out z f32 [5,6]
---
5
| 6
| | a[{0},{1}] = 1
4
| 5:p
| | a[{0}+1,{1}+1] = a[{0},{1}] * 0.5 + x[{0},{1}]
5
| 6
| | z[{0},{1}] = a[{0},{1}]
"""

_LAST_WINS = """kernel last_wins
in x f32 [4,6]
out z f32 [9]
---
4
| 6
| | z[{0}+{1}] = x[{0},{1}]
"""

_SHIFTED = """kernel shifted
in x f32 [8]
tmp t f32 [9] heap
out z f32 [8]
---
9
| t[{0}] = 0
8:p
| t[{0}+1] = x[{0}]
8:p
| z[{0}] = t[{0}]
"""

_RECURRENCE = """kernel recurrence
in x f32 [8]
tmp a f32 [8] heap
tmp b f32 [8] heap
out z f32 [8]
---
8
| a[{0}] = x[{0}]
7
| b[{0}] = a[{0}] * 0.5
| a[{0}+1] = b[{0}] + x[{0}+1]
8
| z[{0}] = a[{0}]
"""

_TRACE = """kernel trace
in x f32 [4,4]
tmp t f32 [4,4] stack
out z f32 [4]
---
4
| 4
| | t[{0},{1}] = x[{0},{1}]
4
| z[{0}] = t[{0},{0}]
"""

# one element of the scratch serves every iteration
_SCRATCH = """kernel scratch
in x f32 [8]
tmp t f32 [2,8] stack
out z f32 [8]
---
8:p
| t[1,0] = x[{0}] * 2
| t[0,{0}] = t[1,0] + 1
| z[{0}] = t[0,{0}]
"""

_WINDOW = """kernel window
in x f32 [9]
tmp t f32 [9] heap
out z f32 [8]
---
8
| t[{0}] = x[{0}]
| t[{0}+1] = x[{0}+1]
| z[{0}] = t[{0}] - t[{0}+1]
"""

_COUNTER = """kernel counter
in x f32 [6]
tmp a f32 [1] heap
out y f32 [1]
out z f32 [6]
---
a[0] = 0
6
| a[0] += x[0]
| z[{0}] = x[{0}]
y[0] = a[0]
"""

_RESTART = """kernel restart
in x f32 [6,4]
tmp s f32 [1] stack
out z f32 [6]
---
6
| s[0] = 0
| 4
| | s[0] += x[{0},{1}]
| z[{0}] = s[0]
"""

_SNAPSHOT = """kernel snapshot
in x f32 [6]
in y f32 [6]
tmp a f32 [1] heap
tmp b f32 [1] heap
out w f32 [6]
out z f32 [6]
---
a[0] = x[0]
6
| b[0] = a[0] * 2
| a[0] = y[{0}]
| w[{0}] = b[0]
| z[{0}] = a[0] + b[0]
"""

_DELAY = """kernel delay
in x f32 [6]
in y f32 [6]
tmp a f32 [1] heap
out z f32 [6]
---
a[0] = 0
6
| z[{0}] = a[0] + x[{0}]
| a[0] = y[0]
"""

_REVERSE = """kernel reverse
in x f32 [6]
tmp b f32 [6] heap
tmp a f32 [6] heap
out z f32 [6]
---
6
| b[{0}] = x[{0}]
6
| a[{0}] = b[{0}]
6
| b[-{0}+5] = a[{0}] + 1
6
| z[{0}] = b[{0}]
"""

# partial results that parallel iterations may share, and one sum that they may not
_PARTIAL = """kernel partial
in x f32 [2,3]
tmp s f32 [1] heap
tmp t0 f32 [3] stack
out z f32 [1]
---
s[0] = 0
3
| t0[{0}] = 0
2
| 3:p
| | t0[{1}] += x[{0},{1}]
3
| s[0] += t0[{0}]
z[0] = s[0]
"""

# outside of the scope the first slot would be common, and so would the second
_SLOTS = """kernel slots
in x f32 [6]
tmp t f32 [2] stack
out z f32 [6]
---
6:p
| t[0] = x[0] * 2
| t[1] = x[{0}] + 1
| z[{0}] = t[0] * t[1]
"""

# as one dimension, what the iterations of the parallel scope add to is no longer told apart
_COLUMNS = """kernel columns
in x f32 [4,6]
tmp c f32 [6,4] heap
out z f32 [6,4]
---
6
| 4
| | c[{0},{1}] = 0
4:p
| 6
| | c[{1},{0}] += x[{0},{1}]
| 6
| | c[{1},{0}] += x[{0},-{1}+5]
6
| 4
| | z[{0},{1}] = c[{0},{1}]
"""

# a box round what an iteration reads holds an element that another one writes
_CORNER = """kernel corner
in x f32 [6]
tmp b f32 [2,7] heap
out z f32 [6,2]
---
2
| 7
| | b[{0},{1}] = 1
6:p
| b[0,{0}] = x[{0}]
| 2
| | z[{0},{1}] = b[0,{0}] + b[1,{0}+1]
"""

# both indices together tell iterations apart; where the second is reused, no order of the
# interpreter shows the race, but its absence is not proven
_SKEWED = """kernel skewed
in x f32 [4,4]
tmp t f32 [7,4] heap
out z f32 [4,4]
---
4:p
| 4
| | t[{0}+{1},{1}] = x[{0},{1}]
| | z[{0},{1}] = t[{0}+{1},{1}]
"""

TRAPS = {
    text.split()[1]: text
    for text in (
        _WAVEFRONT,
        _DIAGONAL,
        _LAST_WINS,
        _SHIFTED,
        _RECURRENCE,
        _TRACE,
        _SCRATCH,
        _WINDOW,
        _COUNTER,
        _RESTART,
        _SNAPSHOT,
        _DELAY,
        _REVERSE,
        _PARTIAL,
        _SLOTS,
        _COLUMNS,
        _CORNER,
        _SKEWED,
    )
}
