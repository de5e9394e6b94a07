"""Prompts become ids.

Record in: loaded source rows (`schema.LOADED`) and the recipe. Record out: rows
to send (`schema.ROW`) and rejections. Invariant: the ids are exactly those of
the tokenizer's own `apply_chat_template`, called in one place (`template`);
nothing is decoded and encoded again.
"""

import os

# transformers advises at every import that torch is missing; nothing here needs it.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
