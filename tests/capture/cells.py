"""Runs notebook cells in a process of their own: JSON lines in, JSON lines out.

A cell is compiled as IPython does it: under the name of a file that does not exist, with its text
in linecache, in the namespace of `__main__`. The answer is the value of its last expression.
"""

import ast
import json
import linecache
import sys

SPACE = {"__name__": "__main__"}


def run(text, number):
    name = f"/nowhere/ipykernel_1/{number}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    tree = ast.parse(text)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), SPACE)
    return eval(compile(ast.Expression(last.value), name, "eval"), SPACE) if last else None


if __name__ == "__main__":
    for at, line in enumerate(sys.stdin):
        try:
            answer = {"value": run(json.loads(line), at)}
        except Exception as error:
            answer = {"error": type(error).__name__, "told": str(error)}
        print(json.dumps(answer, default=str), flush=True)
