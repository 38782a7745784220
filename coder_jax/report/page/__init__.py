"""The page of a report: template, style and script, and what fills them."""
