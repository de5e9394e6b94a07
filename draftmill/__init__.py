"""Token-exact training data for speculative-decoding drafters.

Prompts in; the target model's own completions out, as the ids it really
produced. Plain Python, no Prefect: `tasks/` and `flows/` stand on this package
and nothing in it imports them.
"""

__version__ = "0.1.0"
