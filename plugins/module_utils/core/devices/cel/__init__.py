# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""CEL for device selectors: lexer, parser, type checker, and evaluator in plain Python.

lexer.py, parser.py (with macros.py), and checker.py (with declarations.py and types.py) process the text. evaluator.py
and loops.py convert the result to closures over the functions of library.py.
"""
