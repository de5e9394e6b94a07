"""The report page: one self-contained HTML file per manifest, for people.

In: a manifest and its rows. Out: `reports/NNNNNNNN.html` beside them. Nothing
of it is read by any other part of draftmill; a page that cannot be made costs
no row and fails no run. Text of prompts and models is untrusted: it goes in as
data, is made safe by `plain_text`, and the page sets it as text only.
"""
