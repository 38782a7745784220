"""Tables as people keep them: comma, semicolon or tab separated text, and Excel workbooks."""
